cimport cython
from penstock.store cimport layout as L
from penstock.store cimport syscalls
from penstock.store.files cimport LocalFiles
from penstock.store.kernel cimport Kernel
from penstock.store.offers cimport Offers
from penstock.timequeue.clients cimport Client
from penstock.timequeue.syncasking cimport Asked, Asking

ctypedef unsigned long long u64

cdef u64 BEGUN
cdef u64 DONE
cdef u64 BELL
cdef u64 BEGUN_US
cdef int LEADERS
cdef int CLOCK_MONOTONIC

@cython.final
cdef class Told:
    cdef public int code
    cdef public bint unknown
    cdef object _mutex

    cpdef int sync_data(self, LocalFiles files) except -1
    cpdef int sync_kernel(self, LocalFiles files) except -1
    cdef int _sync(self, LocalFiles files, bint kernel) except -1

cdef class SharedSync:
    cdef Client _client
    cdef Kernel _kernel
    cdef u64 _word
    cdef long long _byte
    cdef Told _told
    cdef bint _served
    cdef dict _leaders
    cdef object _bell
    cdef LocalFiles _files
    cdef public double _usual_s

    cpdef int _perform(self, u64 number, bint doubtful) except -1
    cpdef bint _makes_up(self) except -1
    cpdef int _gather(self) except -1
    cpdef int _serve(self, u64 number) except -1
    cpdef bint _may_sleep(self) except -1
    cpdef bint has_syncer(self) except -1
    cpdef Asked _ask(self, object ranges)
    @cython.locals(bell=u64, waits=int, offered=bint, asked=Asked)
    cpdef object wait(self, u64 ticket, object then=*, object argument=*, object offer=*, object ranges=*)
    cpdef int tell_sleepers(self) except -1
    @cython.locals(i=int)
    cpdef bint _may_lead(self, int waits) except -1
    @cython.locals(i=int)
    cpdef int _end_leading(self) except -1
    cpdef object _lead(self, object then, object argument)
    @cython.locals(number=u64, started_us=u64, took_us=u64)
    cdef object _complete(self, tuple begun, object then, object argument)
    cpdef bint lead_alone(self, object reserve, object copy, object then, object argument) except -1
    cpdef tuple _reserve_and_begin(self, object reserve, object argument)
    cpdef int failed(self) except -1
    cpdef int require_working(self) except -1
    cpdef u64 ticket(self) except? 0
    @cython.locals(number=u64, begun_us=u64, open_ended=bint, doubtful=bint, shared=bint)
    cpdef tuple _begin(self)
    cpdef object _finish(self, u64 number, object then, object argument)

cdef class Commits(SharedSync):
    cdef Offers _offers
    cdef readonly Asking _asking

    cpdef bint has_syncer(self) except -1
    cpdef Asked _ask(self, object ranges)
    cpdef int _perform(self, u64 number, bint doubtful) except -1
    @cython.locals(expected=u64, filling=u64, deadline=double)
    cpdef int _gather(self) except -1
    cpdef int _serve(self, u64 number) except -1
    cpdef bint _may_sleep(self) except -1

cdef class IndexSyncs(SharedSync):
    cdef Commits _commits
    cdef readonly object notes

    @cython.locals(client=object)  # its methods are passed on
    cpdef int _perform(self, u64 number, bint doubtful) except -1
    cpdef bint _makes_up(self) except -1

cdef class Syncs:
    cdef object _client
    cdef Kernel _kernel
    cdef readonly Commits commits
    cdef readonly IndexSyncs index
