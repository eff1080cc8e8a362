cimport cython
from penstock.store cimport layout as L
from penstock.store cimport syscalls
from penstock.store.files cimport LocalFiles
from penstock.store.kernel cimport Kernel

ctypedef unsigned long long u64

cdef u64 BEGUN
cdef u64 DONE
cdef u64 BELL
cdef u64 BEGUN_US
cdef int LEADERS

@cython.final
cdef class Told:
    cdef public int code
    cdef public bint unknown
    cdef object _mutex

    cpdef object sync(self, object perform)

cdef class Syncs:
    cdef object _client
    cdef Kernel _kernel
    cdef LocalFiles _files
    cdef Told _told
    cdef readonly object notes
    cdef readonly SharedSync commits
    cdef readonly SharedSync index

    @cython.locals(expected=u64, filling=u64, deadline=double)
    cpdef object _gather(self, double longest_s)
    cpdef object _sync_data(self, u64 number, bint doubtful)

cdef class SharedSync:
    cdef object _client
    cdef Kernel _kernel
    cdef u64 _word
    cdef long long _byte
    cdef object _perform
    cdef Told _told
    cdef bint _served_by_any
    cdef object _gather
    cdef object _serve
    cdef bint _served
    cdef dict _leaders
    cdef object _bell
    cdef LocalFiles _files
    cdef public double _usual_s

    @cython.locals(i=int)
    cpdef bint _may_lead(self, int waits) except -1
    cpdef int _end_leading(self) except -1
    cpdef int failed(self) except -1
    cpdef int require_working(self) except -1
    cpdef u64 ticket(self) except? 0
