cimport cython
from penstock.store cimport rig
from penstock.store cimport syscalls

cdef enum:
    WATCHED = 4

cdef object _handler_of
cdef object _SIGPIPE
cdef object _IGNORED

cpdef bint send(int fd, bytes frame) except -1
cpdef bytes receive(int fd)

cdef class Watched:
    cdef int _count
    cdef syscalls.c_pollfd[WATCHED] _fds

    @cython.locals(found=int)
    cpdef int wait(self, long long timeout_us) except -1
