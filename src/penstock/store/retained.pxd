cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Retained:
    cdef Words words
    cdef u64 slots_at

    @cython.locals(flags=u64, number=u64)
    cdef bint must_keep(self, u64 slot) noexcept
    cdef void keep(self, u64 slot) noexcept
    cdef void begin(self, u64 number) noexcept
    cdef void end(self, u64 number) noexcept
    cpdef u64 retirable(self) noexcept
    @cython.locals(following=u64)
    cdef void take(self, u64 slot) noexcept
