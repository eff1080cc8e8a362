cimport cython
from penstock.store cimport fifos
from penstock.store cimport layout as L
from penstock.store cimport syscalls
from penstock.store.kernel cimport Kernel
from penstock.timequeue.syncframes cimport confconf_frame, has_answer, request_frame

ctypedef unsigned long long u64

cdef int CLOCK_MONOTONIC

cpdef u64 now_us() except? 0

@cython.final
cdef class Line:
    cdef readonly u64 generation
    cdef readonly int request
    cdef readonly int confconf

@cython.final
cdef class Channel:
    cdef readonly u64 client
    cdef readonly u64 number
    cdef public u64 serial
    cdef int _owner
    cdef list _paths
    cdef list _fds
    cdef readonly int receipt
    cdef readonly int confirm

@cython.final
@cython.freelist(64)
cdef class Asked:
    cdef Asking _asking
    cdef Line _line
    cdef Channel _channel
    cdef u64 _end_us
    cdef bint _has_more_time
    cdef u64 _serial
    cdef bint _waits

    cdef int send(self, Asking asking, Line line, Channel channel, object ranges) except -1
    cpdef bint may_answer(self) except -1
    cdef bint _has_receipt(self) except -1
    @cython.locals(channel=Channel)
    cpdef int confirm(self) except -1
    @cython.locals(channel=Channel)
    cpdef int end(self) except -1

@cython.final
cdef class Asking:
    cdef object _folder
    cdef Kernel _kernel
    cdef readonly Line _line
    cdef u64 _lost_generation
    cdef public u64 _again_us
    cdef readonly list _free
    cdef list _all
    cdef list _unused

    cpdef bint may_ask(self) except -1
    @cython.locals(generation=u64, line=Line, channel=Channel, asked=Asked)
    cpdef Asked ask(self, u64 client, object ranges)
    cpdef Channel _channel(self, u64 client)
    cdef Line _connect(self, u64 generation)
    cdef int lost(self, Line line) except -1
    cpdef int _do_without(self, u64 generation) except -1
    cdef int free(self, Channel channel) except -1
    cpdef int close(self) except -1
