cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Ring:
    cdef Words words
    cdef u64 slots_at
    cdef u64 total_units

    cpdef u64 start(self, u64 slot) noexcept
    cpdef u64 units(self, u64 slot) noexcept
    cpdef u64 after(self, u64 slot) noexcept
    cpdef u64 before(self, u64 slot) noexcept
    cpdef u64 gap(self, u64 slot) noexcept
    @cython.locals(tried=int)
    cpdef bint fits(self, u64 units) noexcept
    cpdef void take(self, u64 slot, u64 units) noexcept
    cpdef void free(self, u64 slot) noexcept
    cpdef void part(self, u64 slot) noexcept
    cpdef void free_run(self, u64 first, u64 last, u64 units) noexcept
    cdef void _rotate(self, u64 last) noexcept
    cdef void _add_gap(self, u64 slot) noexcept
    cdef void _drop_gap(self, u64 slot) noexcept
    cdef void _set_gap(self, u64 slot, u64 ahead, u64 behind) noexcept
    cdef void _set_after(self, u64 slot, u64 following) noexcept
    cdef void _set_before(self, u64 slot, u64 before) noexcept
