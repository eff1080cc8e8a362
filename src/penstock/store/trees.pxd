cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Trees:
    cdef Words words
    cdef u64 slots_at
    cdef u64 trees_at
    cdef u64 classes_at
    cdef readonly u64 classes
    cdef readonly bint exclusive
    cdef u64 major
    cdef u64 minor
    cdef u64 rank
    cdef u64 time_us
    cdef u64 number
    cdef u64[512] path

    cpdef u64 type_of(self, u64 slot) noexcept
    cpdef u64 key_of(self, u64 slot) noexcept
    cpdef u64 number_of(self, u64 slot) noexcept
    cpdef u64 size_of(self, u64 slot) noexcept
    cpdef u64 major_of(self, u64 which, u64 slot) noexcept
    cpdef u64 minor_of(self, u64 which, u64 slot) noexcept
    @cython.locals(info=u64, timed=u64, word=u64)
    cpdef u64 rank_of(self, u64 which, u64 slot) noexcept
    cpdef u64 time_of(self, u64 slot, u64 rank) noexcept
    @cython.locals(mixed=u64)
    cpdef u64 height_of(self, u64 slot) noexcept
    cpdef void aim(self, u64 major, u64 minor, u64 rank, u64 time_us, u64 number) noexcept
    cpdef u64 root_at(self, u64 which, u64 major) noexcept
    cpdef u64 lower(self, u64 which) noexcept
    @cython.locals(node=u64, found=u64, hops=int)
    cpdef u64 lower_in(self, u64 which, u64 root_at) noexcept
    @cython.locals(node=u64, count=u64, hops=int)
    cpdef u64 count_before(self) noexcept
    @cython.locals(own=u64, rank=u64)
    cdef bint _is_before(self, u64 which, u64 slot) noexcept
    @cython.locals(rank=u64)
    cdef void _aim_at(self, u64 which, u64 slot) noexcept
    @cython.locals(height=u64, above=u64, side=int, node=u64, hops=int)
    cpdef void insert(self, u64 which, u64 slot) noexcept
    @cython.locals(left=u64, left_side=int, right=u64, right_side=int, depth=int)
    cdef void _split(self, u64 which, u64 slot, u64 node) noexcept
    @cython.locals(above=u64, side=int, node=u64, hops=int)
    cpdef void remove(self, u64 which, u64 slot) noexcept
    @cython.locals(size=u64, taken=u64, taken_left=bint, hops=int)
    cdef void _join(self, u64 which, u64 above, int side, u64 left, u64 right) noexcept
    cpdef u64 links_at(self, u64 which, u64 slot) noexcept
    @cython.locals(pair=u64)
    cdef u64 _child(self, u64 which, u64 slot, int side) noexcept
    @cython.locals(at=u64, pair=u64)
    cdef void _set_child(self, u64 which, u64 above, int side, u64 slot) noexcept
    cdef void _set_size(self, u64 slot, u64 size) noexcept
    cdef void _measure(self, u64 slot) noexcept
    cdef void _refuse(self, u64 which, u64 slot) noexcept
