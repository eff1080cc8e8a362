cimport cython
from penstock.store cimport fifos
from penstock.store cimport syscalls
from penstock.timequeue.syncbatches cimport Batches
from penstock.timequeue.syncframes cimport Confirmations, Request, Requests, answer_frame

ctypedef unsigned long long u64

cdef int CLOCK_MONOTONIC
cdef int _REQUEST
cdef int _CONFCONF
cdef int _STOP

cpdef u64 now_us() except? 0

@cython.final
cdef class Answers:
    cdef object _folder
    cdef object _kind
    cdef dict _fds

    @cython.locals(key=u64)
    cpdef bint send(self, Request request, u64 code) except -1
    cdef bint _send_first(self, Request request, u64 key, bytes frame) except -1

cdef class QueueSyncer:
    cdef object __weakref__
    cdef object _closing
    cdef object _ending
    cdef bint _ended
    cdef readonly object path
    cdef readonly object _client
    cdef readonly Requests _requests
    cdef readonly Confirmations _confirmations
    cdef readonly Answers _receipts
    cdef readonly Answers _confirms
    cdef readonly int _request
    cdef readonly int _confconf
    cdef readonly list _places
    cdef int _stop
    cdef int _stopping
    cdef fifos.Watched _watched
    cdef fifos.Watched _napping
    cdef readonly Batches _batches
    cdef readonly u64 syncs
    cdef readonly u64 served
    cdef u64 _generation

    @cython.locals(ready=int, now=u64, nap_us=u64)
    cpdef bint step(self) except -1
    @cython.locals(now=u64, request=Request)
    cdef int _take_requests(self) except -1
    cdef int _sync(self, u64 now) except -1
    @cython.locals(request=Request)
    cdef u64 _tell(self, list waiting, u64 code) except? 0
