cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef u64 _ROW_WORDS
cdef u64 _ROWS_MAX
cdef u64 _HEAP_MAX
cdef u64 _META_MAX
cdef u64 _AGE_US
cdef u64 _ATTEMPTS_MOST
cdef u64 _ACKED
cdef u64 _REFERENCE_WORDS
cdef u64 _SLOT
cdef u64 _NUMBER
cdef u64 _DELIVER_US
cdef u64 _INFO

@cython.final
cdef class Outcomes:
    cdef object rows
    cdef u64[::1] words
    cdef readonly u64 count
    cdef bytearray heap
    cdef dict places
    cdef bytes last
    cdef u64 last_at
    cdef u64 due_us
    cdef readonly list sealed
    cdef public bint keeping

    @cython.locals(said=bytes, at=u64, first=u64)
    cpdef int note(self, u64 number, u64 slot, u64 enqueued_us, u64 deliver_us, u64 taken_us, u64 done_us,
                   u64 attempts, u64 priority, u64 result, bytes meta, bytes text) except -1
    @cython.locals(metas=list, enqueued_us="const long long[::1]", faults="const unsigned char[::1]", i=u64, at=u64,
                   info=u64)
    cpdef int note_claimed(self, const u64[::1] references, object found, const u64[::1] taken_us, u64 first,
                           u64 count, u64 done_us, bytes text) except -1
    @cython.locals(found=object)
    cdef u64 _place(self, bytes said) except? 0
    cpdef int seal(self) except -1
