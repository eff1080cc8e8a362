cimport cython
from penstock.timequeue.syncframes cimport Request

ctypedef unsigned long long u64

cdef object _GATHERING
cdef object _SYNCING
cdef object _CONFIRMING
cdef double IDLE_SHARE
cdef double USUAL_SHARE

@cython.final
cdef class Ranges:
    cdef u64 _gap_bytes
    cdef list _starts
    cdef list _ends
    cdef readonly u64 total_bytes

    @cython.locals(at=Py_ssize_t, end=u64, following=u64)
    cpdef bint is_near(self, u64 start, u64 length) except -1
    @cython.locals(end=u64, first=Py_ssize_t, last=Py_ssize_t, before=u64, following=u64)
    cpdef int add(self, u64 start, u64 length) except -1
    cpdef list merged(self)

@cython.final
cdef class Batches:
    cdef u64 _batch_bytes_max
    cdef Py_ssize_t _batch_requests_max
    cdef u64 _gather_us
    cdef u64 _fixed_idle_us
    cdef u64 _gap_bytes
    cdef bint _automatic
    cdef u64 _data_bytes
    cdef readonly object state
    cdef list _batch
    cdef Ranges _ranges
    cdef list _saved
    cdef set _unconfirmed
    cdef u64 _first_us
    cdef u64 _last_us
    cdef u64 _since_us
    cdef Py_ssize_t _expected
    cdef double _usual_us
    cdef double _usual_gather_us
    cdef u64 _told_us

    cpdef bint request(self, Request request, u64 now_us) except -1
    @cython.locals(offset=u64, length=u64)
    cdef bint _is_possible(self, Request request) except -1
    @cython.locals(offset=u64, length=u64)
    cdef int _sort_in(self, Request request, u64 came_us) except -1
    @cython.locals(offset=u64, length=u64, left_bytes="long long")
    cdef bint _fits(self, Request request) except -1
    cpdef bint sync_due(self, u64 now_us) except -1
    cdef bint _is_full(self) except -1
    cdef u64 _closes_us(self) except? 0
    cpdef u64 idle_us(self) except? 0
    cpdef u64 confirm_us(self) except? 0
    @cython.locals(gathered_us=double)
    cpdef list begin(self, u64 now_us)
    @cython.locals(some=Request)
    cpdef list synced(self, u64 now_us)
    cpdef int confirmed(self, tuple who) except -1
    cpdef int gone(self, tuple who) except -1
    cpdef int look(self, u64 now_us) except -1
    cpdef list give_up(self)
    cpdef object next_look_us(self)
    @cython.locals(missing=Py_ssize_t, due_us=object, nap_us=double)
    cpdef u64 nap_us(self, u64 now_us) except? 0
    cdef int _advance(self, u64 now_us) except -1
