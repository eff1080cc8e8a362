cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

cdef u64 NOTHING

@cython.final
cdef class Remembered:
    cdef readonly Words words
    cdef readonly u64 at
    cdef readonly u64 buckets
    cdef u64 slots_at

    @cython.locals(entry=u64, end=u64)
    cpdef u64 find(self, u64 key, u64 now_us) noexcept
    @cython.locals(entry=u64, end=u64, free=u64, found=u64)
    cpdef u64 add(self, u64 key, u64 until_us, u64 number, u64 slot, u64 flags, u64 now_us) except? 0
    @cython.locals(at=u64)
    cpdef int settle(self, u64 entry) except -1
    cpdef int forget(self, u64 entry) except -1
    cpdef u64 number(self, u64 entry) noexcept
    cpdef u64 until_us(self, u64 entry) noexcept
    cpdef u64 last(self, u64 entry) noexcept
    cpdef u64 slot(self, u64 entry) noexcept
    cpdef bint is_settled(self, u64 entry) noexcept
    @cython.locals(word=u64)
    cpdef bint is_being_put(self, u64 entry) noexcept
    @cython.locals(last=u64, key=u64, wanted=u64, bucket=u64)
    cpdef bint is_whole(self, u64 entry) noexcept
    @cython.locals(mixed=u64)
    cpdef u64 last_word(self, u64 key, u64 until_us, u64 number, u64 slot, u64 flags) noexcept
    cdef bint _is_over(self, u64 entry, u64 now_us) noexcept
    cdef u64 _bucket(self, u64 key) noexcept
