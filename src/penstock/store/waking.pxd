cimport cython
from penstock.store cimport layout as L
from penstock.store cimport rig
from penstock.store cimport syscalls

ctypedef unsigned long long u64

@cython.final
cdef class Futex:
    cdef object _word
    cdef u64 _address

    @cython.locals(whole="long long")
    cpdef bint wait(self, u64 seen, double timeout_s) except -1
    cpdef int wake(self, u64 count) except -1
