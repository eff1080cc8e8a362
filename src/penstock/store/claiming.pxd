cimport cython
from penstock.store cimport layout as L
from penstock.store.kernel cimport Kernel
from penstock.store.measuring cimport Measuring
from penstock.store.order cimport Order
from penstock.store.vacating cimport Vacating
from penstock.store.words cimport Words

ctypedef unsigned long long u64

cdef u64 _ROW
cdef u64 _SLOT
cdef u64 _NUMBER
cdef u64 _PLACE
cdef u64 _DELIVER_US
cdef u64 _INFO

@cython.final
cdef class Claiming:
    cdef readonly Kernel kernel
    cdef Words words
    cdef Order order
    cdef Measuring measuring
    cdef Vacating vacating
    cdef u64 slots_at
    cdef u64 slots
    cdef u64 names_at
    cdef readonly u64 used_units
    cdef readonly u64 looked
    cdef readonly bint more
    cdef readonly bint late
    cdef readonly u64 last_us
    cdef readonly u64 last_number

    cpdef u64 word(self, u64 entry, u64 word) noexcept
    @cython.locals(at=u64, epoch=u64)
    cpdef u64 enter(self, u64 entry, u64 claim, u64 now_us) except? 0
    @cython.locals(at=u64, timeout_us=u64)
    cpdef bint overdue(self, u64 entry, u64 now_us) noexcept
    cpdef void seen(self, u64 entry, u64 now_us) noexcept
    cpdef u64 first(self, u64 entry) noexcept
    cpdef u64 last(self, u64 entry) noexcept
    cpdef u64 claim_of(self, u64 slot) noexcept
    cpdef u64 before(self, u64 slot) noexcept
    cpdef u64 after(self, u64 slot) noexcept
    cpdef bint holds(self, u64 entry, u64 slot, u64 number) noexcept
    cpdef u64 owner(self, u64 entry) noexcept
    @cython.locals(at=u64, to=u64)
    cpdef int row(self, u64[::1] rows, u64 index, u64 slot) except -1
    @cython.locals(count=u64, slot=u64, first=bint)
    cpdef u64 take(self, u64[::1] rows, u64 most, u64 room_units, bint empty, u64 now_us, u64 entry,
                   u64 claim, u64 due_us, u64 below) except? 0
    @cython.locals(units=u64)
    cdef u64 _take_one(self, u64 slot, u64[::1] rows, u64 index, u64 room_units, bint empty, u64 now_us, u64 entry,
                       u64 claim, u64 below) except? 0
    @cython.locals(which=u64, rival=u64, comes_next=bint, owner=u64, first=u64, begun=u64, last=u64, behind=u64, at=u64,
                   number=u64, place=u64, units=u64, info=u64, deliver_us=u64, to=u64)
    cdef u64 _take_run(self, u64 slot, u64[::1] rows, u64 index, u64 end, u64 room_units, bint empty, u64 now_us,
                       u64 entry, u64 claim, u64 due_us, u64 below) except? 0
    @cython.locals(other=u64, slot=u64)
    cdef u64 _rival(self, u64 which, u64 now_us) noexcept
    cdef bint _is_next(self, u64 slot, u64 which, u64 rival, u64 now_us) noexcept
    @cython.locals(chain=u64, ends=u64, behind=u64)
    cdef int _took(self, u64 which, u64 head, u64 first, u64 last, u64 link, u64 entry, u64 claim,
                   u64 count) except -1
    @cython.locals(count=u64, priority=u64, ready=u64, timed=u64, slot=u64, number=u64)
    cpdef u64 walk(self, u64[::1] rows, u64[::1] places, u64 most, u64 steps, u64 now_us, u64 below,
                   u64[::1] passed) except? 0
    cdef u64 _behind(self, u64 which, u64[::1] places) except? 0
    cdef u64 _step(self, u64 which, u64[::1] places, u64 slot, u64 key) except? 0
    @cython.locals(timed_us=u64, ready_us=u64)
    cdef bint _is_earlier(self, u64 timed, u64 ready) noexcept
    @cython.locals(count=u64, uncounted=u64, used=u64, index=u64, slot=u64, units=u64)
    cpdef u64 take_chosen(self, u64[::1] chosen, u64 first, u64 end, u64[::1] rows, u64 room_units, bint empty,
                          u64 now_us, u64 entry, u64 claim) except? 0
    cdef bint _waits(self, u64 slot, u64 number, u64 deliver_us) noexcept
    @cython.locals(count=u64, slot=u64)
    cpdef u64 count_due(self, u64 which, u64 after_us, u64 number, u64 now_us, u64 most) except? 0
    @cython.locals(oldest=u64, which=u64, due_us=u64)
    cpdef u64 oldest_due_us(self, u64 now_us) noexcept
    @cython.locals(at=u64)
    cdef void _claim(self, u64 slot, u64 now_us, u64 entry, u64 claim) noexcept
    cdef int _claimed(self, u64 entry, u64 claim, u64 count) except -1
    @cython.locals(at=u64)
    cdef void _attached(self, u64 entry, u64 claim, long long count) noexcept
    @cython.locals(at=u64, low=u64)
    cpdef int adopt(self, u64 slot, u64 entry, u64 claim, u64 info) except -1
    @cython.locals(at=u64, chain=u64, ends=u64, last=u64)
    cdef void _attach(self, u64 slot, u64 entry, u64 claim) noexcept
    @cython.locals(count=u64, begun=u64, slot=u64, following=u64)
    cpdef u64 ack(self, u64 entry, u64 claim, u64 most, u64 now_us) except? 0
    @cython.locals(chain=u64)
    cdef int _acked(self, u64 entry, u64 first, long long count) except -1
    cpdef int ack_spilled(self, u64 entry, u64 spilled_bytes, u64 now_us) except -1
    cpdef int remove(self, u64 entry, u64 slot, u64 spilled_bytes, u64 statistic) except -1
    cdef void _remove(self, u64 slot, u64 entry, u64 spilled_bytes, u64 statistic) noexcept
    cpdef int put_off(self, u64 entry, u64 slot, u64 deliver_us, u64 now_us) except -1
    @cython.locals(slot=u64, before=u64)
    cpdef u64 give_back(self, u64 entry, u64 claim, u64 start, u64 most, u64 now_us) except? 0
    cdef void _give_back(self, u64 slot, u64 entry, u64 now_us) noexcept
    cdef void _return(self, u64 slot, u64 entry, u64 now_us) noexcept
    @cython.locals(chain=u64, ahead=u64, behind=u64, ends=u64, first=u64, last=u64)
    cdef void _detach(self, u64 slot, u64 entry) noexcept
    cdef u64 _at(self, u64 entry) noexcept
