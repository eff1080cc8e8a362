cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

cdef extern from *:
    int __builtin_clzll(u64 value) nogil

cdef u64 TICK_US
cdef u64 RECENT_SHARE

cdef inline u64 _bits(u64 value) noexcept nogil:
    return 64 - __builtin_clzll(value)

@cython.locals(bits=u64)
cpdef u64 bucket_of(u64 took_us) noexcept

@cython.final
cdef class Measuring:
    cdef Words words
    cdef u64 at
    cdef public bint keeping
    cdef u64 alike
    cdef u64 alike_deliver_us
    cdef u64 alike_us

    @cython.locals(deliver_us=u64)
    cpdef void delivered(self, u64 at, u64 now_us) noexcept
    cdef void first_delivered(self, u64 deliver_us, u64 enqueued_us, u64 now_us, u64 count) noexcept
    cdef void begin(self) noexcept
    cdef void first_delivered_later(self, u64 deliver_us, u64 enqueued_us, u64 now_us) noexcept
    cdef void measure_delivered(self, u64 now_us) noexcept
    cpdef void acknowledged(self, u64 at, u64 now_us) noexcept
    @cython.locals(took_us=u64, recent_us=u64, before_us=u64)
    cpdef void done(self, u64 attempt_us, u64 now_us, u64 count) noexcept
    cdef void done_later(self, u64 attempt_us, u64 now_us) noexcept
    cdef void measure_done(self, u64 now_us) noexcept
    @cython.locals(took_us=u64, bucket=u64)
    cdef void _add(self, u64 span, u64 since_us, u64 now_us, u64 count) noexcept
    cpdef bint is_tick(self, u64 now_us) noexcept
    @cython.locals(before_us=u64, count=u64, before=u64, more=u64, at=u64, rate=u64, window=u64)
    cpdef int advance(self, u64 now_us, u64 boot_us) except -1
    @cython.locals(total=u64, word=u64)
    cdef u64 _counted(self, u64 rate) except? 0
