cimport cython
from penstock.store cimport layout as L
from penstock.store.ring cimport Ring
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Vacating:
    cdef Words words
    cdef Ring ring
    cdef u64 slots_at
    cdef u64 first
    cdef u64 last
    cdef u64 units

    cdef void free(self, u64 slot) noexcept
    cdef void begin(self) noexcept
    @cython.locals(last=u64)
    cdef void free_later(self, u64 slot) noexcept
    cdef void end(self) noexcept
