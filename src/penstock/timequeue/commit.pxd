cimport cython
from penstock.store cimport layout as L
from penstock.store.kernel cimport Kernel

ctypedef unsigned long long u64

cdef u64 BEGUN
cdef u64 DONE
cdef u64 BELL
cdef u64 BEGUN_US
cdef int LEADERS

cdef class SharedSync:
    cdef object _client
    cdef Kernel _kernel
    cdef u64 _word
    cdef long long _byte
    cdef object _perform
    cdef object _told
    cdef bint _served_by_any
    cdef object _gather
    cdef object _serve
    cdef dict _leaders
    cdef object _bell
    cdef double _usual_s

    @cython.locals(i=int)
    cpdef bint _may_lead(self, int waits) except -1
    cpdef int _end_leading(self) except -1
    cpdef int require_working(self) except -1
    cpdef u64 ticket(self) except? 0
