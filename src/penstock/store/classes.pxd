cimport cython
from penstock.store cimport layout as L
from penstock.store.order cimport Order
from penstock.store.sleepers cimport Sleepers
from penstock.store.trees cimport Trees
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Choice:
    cdef readonly list types
    cdef readonly list keys

@cython.final
cdef class Group:
    cdef readonly u64 key
    cdef readonly u64 slot
    cdef readonly u64 waiting
    cdef readonly u64 due
    cdef readonly u64 oldest_us
    cdef readonly bint busy

@cython.final
cdef class Classes:
    cdef Words words
    cdef Order order
    cdef Sleepers sleepers
    cdef readonly Trees trees
    cdef u64 slots_at
    cdef u64 trees_at
    cdef readonly bint exclusive
    cdef readonly u64 next_us
    cdef u64 ready
    cdef u64 timed
    cdef u64 priority

    cpdef void classify(self, u64 slot, u64 type_hash, u64 key_hash) noexcept
    @cython.locals(key=u64)
    cpdef void enter(self, u64 slot) noexcept
    cpdef void enter_listed(self, u64 slot) noexcept
    @cython.locals(state=u64, waits=bint, owned=bint)
    cpdef void join(self, u64 slot) noexcept
    @cython.locals(key=u64)
    cpdef void leave(self, u64 slot) noexcept
    cpdef void left(self, u64 slot) noexcept
    @cython.locals(key=u64)
    cpdef void taken(self, u64 slot) noexcept
    cpdef void done(self, u64 slot) noexcept
    cdef void _list(self, u64 slot) noexcept
    cdef void _unlist(self, u64 slot) noexcept
    @cython.locals(slot=u64)
    cdef u64 _first(self, u64 key, u64 rank) noexcept
    cdef bint _is_busy(self, u64 key) noexcept
    @cython.locals(rank=u64, second=u64)
    cdef void _admit(self, u64 slot, u64 key) noexcept
    cdef void _settle(self, u64 key) noexcept
    cdef void _release(self, u64 slot, u64 receivers) noexcept
    cdef void _hold(self, u64 slot) noexcept
    @cython.locals(info=u64)
    cpdef bint _is_held(self, u64 slot) noexcept
    @cython.locals(at=u64, info=u64, flag=u64)
    cdef void _set_held(self, u64 slot, bint held) noexcept
    @cython.locals(key=u64, type_hash=u64)
    cpdef u64 choose(self, Choice choice, u64 now_us) except? 0
    @cython.locals(minor=u64, slot=u64)
    cdef void _look_at_key(self, u64 key, u64 type_hash, u64 now_us) noexcept
    @cython.locals(ready=u64, timed=u64)
    cdef void _look_at_firsts(self, u64 key, u64 type_hash, u64 now_us) noexcept
    @cython.locals(rank=u64, slot=u64)
    cdef void _look_at(self, u64 which, u64 major, u64 minor, u64 now_us) noexcept
    @cython.locals(at_us=u64)
    cdef bint _offer_timed(self, u64 slot, u64 now_us) noexcept
    @cython.locals(priority=u64)
    cdef void _offer(self, u64 slot, bint ready) noexcept
    cdef u64 _best(self) noexcept
    @cython.locals(own_us=u64, other_us=u64)
    cdef bint _is_earlier(self, u64 slot, u64 other) noexcept
    cdef u64 _deliver_us(self, u64 slot) noexcept
    @cython.locals(root_at=u64, slot=u64)
    cpdef u64 next_held(self, u64 bucket, u64 key, u64 rank, u64 time_us, u64 number) noexcept
    @cython.locals(found=list, end=u64, root_at=u64, slot=u64)
    cpdef list groups(self, u64 bucket, u64 buckets, u64 key, u64 most, u64 now_us)
    @cython.locals(group=Group, slot=u64, minor=u64, rank=u64)
    cpdef Group measure(self, u64 key, u64 now_us)
    @cython.locals(before=u64, count=u64, at_us=u64)
    cdef void _add_run(self, Group group, u64 slot, u64 minor, u64 rank, u64 now_us) noexcept
