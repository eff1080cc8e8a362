cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Order:
    cdef Words words
    cdef u64 lists_at
    cdef u64 slots_at
    cdef u64 slots
    cdef u64[7] before

    @cython.locals(mixed=u64, level=int)
    cpdef int level(self, u64 number) noexcept
    cdef u64 number(self, u64 slot) noexcept
    @cython.locals(info=u64)
    cpdef u64 list_of(self, u64 slot) noexcept
    cdef u64 key(self, u64 which, u64 slot) noexcept
    cpdef u64 head(self, u64 which) noexcept
    cpdef u64 count(self, u64 which) noexcept
    cpdef u64 follower(self, u64 which, int lane, u64 slot) noexcept
    @cython.locals(lane=int, level=int)
    cpdef void insert(self, u64 which, u64 slot) noexcept
    @cython.locals(lane=int, level=int)
    cpdef void remove(self, u64 which, u64 slot) noexcept
    @cython.locals(lane=int, list_at=u64, ahead=u64)
    cpdef void cut(self, u64 which, u64 head, long long count) noexcept
    cpdef u64 after(self, u64 which, u64 key, u64 number) noexcept
    @cython.locals(present=u64, earliest=u64, which=u64, due=u64)
    cpdef u64 next_due_us(self) noexcept
    @cython.locals(present=u64, earliest=u64, oldest=u64, slot=u64, which=u64, due=u64)
    cpdef u64 oldest_due(self, u64 now_us) noexcept
    @cython.locals(slot=u64)
    cpdef u64 next_lease_us(self) noexcept
    @cython.locals(bit=u64)
    cdef u64 _bit(self, u64 which) noexcept
    cdef bint _is_before(self, u64 which, u64 slot, u64 key, u64 number) noexcept
    @cython.locals(at=u64, ahead=u64, hops=u64, lane=int)
    cdef void _search(self, u64 which, u64 key, u64 number) noexcept
    cdef void _link(self, u64 list_at, u64 which, int lane, u64 before, u64 slot) noexcept
    cdef void _unlink(self, u64 list_at, u64 slot) noexcept
    cdef void _unlink_lane(self, u64 list_at, u64 which, int lane, u64 before, u64 slot) noexcept
    cdef void _set_ends(self, u64 at, bint set_head, u64 head, bint set_tail, u64 tail) noexcept
    cdef u64 _next(self, u64 slot) noexcept
    cdef u64 _previous(self, u64 slot) noexcept
    cdef void _set_links(self, u64 slot, u64 ahead, u64 before) noexcept
    cdef void _set_lane(self, u64 slot, int lane, u64 ahead) noexcept
