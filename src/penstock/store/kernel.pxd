cimport cython
from penstock.store cimport layout as L
from penstock.store.announcing cimport Announcing
from penstock.store.classes cimport Choice, Classes
from penstock.store.measuring cimport Measuring
from penstock.store.order cimport Order
from penstock.store.remembered cimport Remembered
from penstock.store.retained cimport Retained
from penstock.store.ring cimport Ring
from penstock.store.sleepers cimport Sleepers
from penstock.store.vacating cimport Vacating
from penstock.store.words cimport Words

ctypedef unsigned long long u64

cdef u64 NUMBERS_SPARE

@cython.final
@cython.freelist(1024)
cdef class Delivery:
    cdef readonly u64 slot
    cdef readonly u64 number
    cdef readonly u64 attempts
    cdef readonly u64 deliver_us
    cdef readonly u64 place

@cython.final
cdef class Kernel:
    cdef readonly Words words
    cdef readonly Measuring measuring
    cdef readonly Order order
    cdef readonly Ring ring
    cdef readonly Vacating vacating
    cdef readonly Retained retained
    cdef readonly Sleepers sleepers
    cdef Announcing announcing
    cdef readonly Remembered remembered
    cdef public object backoff
    cdef readonly Classes classes
    cdef readonly u64 trees_at
    cdef readonly u64 slots_at
    cdef readonly u64 slots
    cdef u64 stats_at
    cdef readonly u64 clients_at
    cdef readonly u64 clients
    cdef u64 data_bytes

    cpdef u64 get(self, u64 index) noexcept
    cpdef u64 field(self, u64 slot, u64 field) noexcept
    cpdef u64 number(self, u64 slot) noexcept
    cpdef u64 state(self, u64 slot) noexcept
    cpdef u64 attempts(self, u64 slot) noexcept
    @cython.locals(mixed=u64)
    cpdef u64 word_of(self, u64 slot, u64 number, u64 state) noexcept nogil
    @cython.locals(found=Delivery)
    cpdef Delivery delivery(self, u64 slot)
    cpdef bint holds(self, u64 slot, u64 number, u64 attempts, u64 owner) noexcept
    cpdef bint recover(self) except -1

    @cython.locals(slot=u64, fresh=u64, number=u64, spilled=u64)
    cpdef Py_ssize_t take(self, u64 units) except? -9
    cpdef int describe(self, u64 slot, u64 deliver_us, u64 info, u64 spilled_bytes, u64 entry=*,
                       u64 enqueued_us=*) except -1
    cpdef int publish_taken(self, u64 slot, u64 now_us) except -1
    cpdef int fill(self, u64 slot, u64 after, u64 client, u64 owner) except -1
    cpdef int publish_filled(self, u64 first, u64 last, u64 count, u64 client, u64 wake, u64 publisher=*,
                             u64 batch=*) except -1
    cpdef int remember(self, u64 publisher, u64 batch) except -1
    @cython.locals(slot=u64, ahead=u64, entry=u64)
    cpdef int merge(self) except -1
    cpdef int readmit(self, u64 slot, u64 type_hash, u64 key_hash) except -1
    cpdef int adopt(self, u64 slot) except -1
    @cython.locals(number=u64, entry=u64)
    cpdef int abandon(self, u64 slot, u64 client, bint tell) except -1

    @cython.locals(present=u64, priority=u64, ready=u64, timed=u64, at_us=u64, ready_us=u64)
    cpdef u64 due(self, u64 now_us) noexcept
    @cython.locals(slot=u64, claimed=list)
    cpdef list claim_many(self, Choice choice, u64 most, u64 now_us, u64 lease_us, u64 client, u64 owner)
    cpdef int claim(self, u64 slot, u64 now_us, u64 lease_us, u64 client, u64 owner) except -1
    cpdef bint claim_slot(self, u64 slot, u64 number, u64 now_us, u64 lease_us, u64 client, u64 owner) except -1
    cpdef int ack(self, u64 slot, u64 client, u64 spilled_bytes, u64 now_us=*) except -1
    cpdef int remove(self, u64 slot, u64 client, u64 spilled_bytes, u64 statistic) except -1
    cpdef int extend(self, u64 slot, u64 lease_us) except -1
    cpdef int release(self, u64 slot, u64 client, u64 deliver_us, u64 now_us) except -1
    cpdef int unclaim(self, u64 slot, u64 client, u64 now_us) except -1
    @cython.locals(slot=u64, client=u64, done=u64)
    cpdef u64 expire(self, u64 boot_us, u64 now_us, u64 most) except? 0
    cpdef u64 chain_head(self, u64 client) noexcept
    cpdef int give_back(self, u64 slot, u64 client, u64 now_us, bint died) except -1
    cpdef int cancel(self, u64 slot, u64 spilled_bytes) except -1
    cpdef int commit(self) except -1
    cpdef int rollback(self) except -1
    cpdef int spill(self, long long delta_bytes) except -1
    cpdef int grow(self, u64 slot, u64 more_bytes) except -1
    @cython.locals(spilled_bytes="long long")
    cpdef int retire(self, u64 slot) except -1
    cpdef bint spilled(self, u64 slot) noexcept
    cpdef void note(self, u64 word, u64 value) noexcept
    cpdef void committed(self, u64 messages, u64 followed) noexcept
    cpdef int synced(self) except -1
    cpdef int tell(self, u64 receivers) except -1
    cpdef void pass_on(self, u64 now_us) noexcept

    cdef void _wake_for(self, u64 slot, u64 now_us) noexcept
    cdef void _room(self) noexcept
    cpdef u64 list_of(self, u64 slot) noexcept
    cpdef bint is_classed(self, u64 slot) noexcept
    cdef void _set_word(self, u64 slot, u64 number, u64 state) noexcept
    cdef void _count(self, u64 word, long long delta) noexcept
    cdef void _published(self, u64 count) noexcept
    cdef void _enter(self, u64 slot) noexcept
    cdef void _leave(self, u64 slot) noexcept
    cdef void _take_up(self, u64 slot) noexcept
    cdef void _give_up(self, u64 slot) noexcept
    cdef void _claim(self, u64 slot, u64 now_us, u64 lease_us, u64 client, u64 owner) noexcept
    cdef void _return(self, u64 slot, u64 client, u64 now_us) noexcept
    @cython.locals(delay_us=u64)
    cdef int _back_off(self, u64 slot, u64 now_us) except -1
    @cython.locals(at=u64)
    cdef void _put_off(self, u64 slot, u64 deliver_us) noexcept
    cpdef int count(self, u64 statistic, long long delta) except -1
    cdef void _vacate(self, u64 slot, u64 spilled_bytes) noexcept
    cdef bint _empty(self, u64 slot, u64 spilled_bytes) noexcept
    cdef u64 _client(self, u64 client) noexcept
    cdef void _set_chain(self, u64 slot, u64 ahead, u64 behind) noexcept
    cdef void _chain(self, u64 slot, u64 after, u64 client) noexcept
    cdef void _unchain(self, u64 slot, u64 client) noexcept
    cdef void _join(self, u64 behind, u64 ahead, u64 client) noexcept
