cimport cython
from penstock.message cimport Message, new_message
from penstock.store cimport layout as L
from penstock.store cimport record
from penstock.store.classes cimport Choice
from penstock.store.files cimport LocalFiles
from penstock.store.kernel cimport Delivery, Kernel
from penstock.store.outcomes cimport Outcomes
from penstock.timequeue.clients cimport Client

ctypedef unsigned long long u64

cdef int VERDICTS_MAX

@cython.final
cdef class Wanted:
    cdef readonly tuple types
    cdef readonly tuple keys
    cdef readonly Choice choice
    cdef dict verdicts

    cpdef bint is_met(self, Message message) except -1

@cython.final
cdef class Look:
    cdef readonly list deliveries
    cdef readonly u64 now_us
    cdef readonly u64 lease_us
    cdef readonly u64 seen
    cdef readonly double sleep_s
    cdef readonly bint again

cdef Message _checked(object message)

@cython.final
cdef class Consumer:
    cdef Client _client
    cdef Kernel _kernel
    cdef LocalFiles _files
    cdef object _receiver
    cdef u64 _max_attempts
    cdef bint _known
    cdef bint _retried

    @cython.locals(look=Look, found=list, unmet=list)
    cpdef list receive(self, u64 most, object wait_s, u64 lease_us, Wanted wanted=*)
    @cython.locals(found=list, message=Message)
    cdef list _met(self, list messages, Wanted wanted, list unmet)
    cdef int _give_back_all(self, list messages) except -1
    cpdef Look look(self, u64 most, u64 lease_us, object left_s, object timed_out, Wanted wanted=*)
    cpdef Look look_at_once(self, u64 most, u64 lease_us, Wanted wanted=*)
    cpdef int _stand_down(self, u64 seen, bint chooses) except -1
    @cython.locals(delivery=Delivery)
    cpdef bint must_read_files(self, Look look) except -1
    @cython.locals(now_us=u64, boot_us=u64, next_lease_us=u64, kernel=Kernel, client=Client)
    cpdef Look _look(self, u64 most, u64 lease_us, object left_s, object timed_out, Wanted wanted)
    @cython.locals(found=list, owner=u64, delivery=Delivery, damaged=Delivery, message=Message)
    cpdef list messages(self, Look look)
    @cython.locals(slot=u64, number=u64, unit=u64, there=u64, parts=record.Parts, message=Message)
    cpdef Message read(self, Delivery delivery, u64 attempt_us, u64 lease_us, u64 owner, str state)
    @cython.locals(now_us=u64, owner=u64, delivery=Delivery)
    cpdef int _give_back(self, list deliveries, Delivery damaged, u64 delay_us) except -1
    cdef bint _held(self, Message message) except -1
    cdef int _require(self, Message message) except -1
    @cython.locals(message=Message, kernel=Kernel, lost=Message, spilled_bytes=u64, now_us=u64, outcomes=Outcomes)
    cpdef int _ack(self, object messages, u64 statistic, u64 result, bytes text) except -1
    cdef int _note(self, Outcomes outcomes, Message message, u64 done_us, u64 result, bytes text) except -1
    cdef int _write_history(self) except -1
    cpdef int note_gone(self, list messages, u64 result, bytes text=*) except -1
    cpdef int fail(self, object message, u64 delay_us, object error) except -1
    cpdef int _fail(self, Message message, u64 delay_us, bytes text) except -1
    cdef bint _is_due(self, Message message, u64 now_us) except -1
    cpdef Message take(self, u64 slot, u64 number, u64 lease_us)
    @cython.locals(kernel=Kernel, now_us=u64, lease_end_us=u64)
    cpdef Delivery _take(self, u64 slot, u64 number, u64 lease_us)
    cpdef int remove(self, object messages, u64 statistic, u64 result=*, bytes text=*) except -1
    cpdef int park(self, Message message, u64 delay_us) except -1
    cpdef int _park(self, Message message, u64 delay_us) except -1
    cpdef int _release(self, Message message, u64 delay_us) except -1
    cpdef int keep(self, object message, u64 span_us) except -1
    cpdef int _keep(self, Message message, u64 span_us) except -1
    cpdef int _extend(self, Message message, u64 span_us) except -1
    cpdef int ack_at_once(self, object messages) except -1
    @cython.locals(message=Message, now_us=u64)
    cpdef int _unget(self, list messages) except -1
    cpdef int unget(self, list messages) except -1
    cpdef int release_at_once(self, object message, u64 delay_us) except -1
    cpdef int extend_at_once(self, object message, u64 span_us) except -1
    cpdef int ack(self, object messages) except -1
    cpdef bint has_special(self, object messages) except -1
    cpdef bint holds(self, Message message) except -1
    cpdef int release(self, object message, u64 delay_us) except -1
    cpdef int extend(self, object message, u64 span_us) except -1
