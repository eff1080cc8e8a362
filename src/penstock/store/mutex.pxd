cimport cython
from cpython.exc cimport PyErr_CheckSignals

cdef extern from "pythread.h" nogil:
    ctypedef void* PyThread_type_lock
    PyThread_type_lock new_lock "PyThread_allocate_lock"()
    void free_lock "PyThread_free_lock"(PyThread_type_lock lock)
    int timed "PyThread_acquire_lock_timed"(PyThread_type_lock lock, long long microseconds, int interruptible)
    void release_lock "PyThread_release_lock"(PyThread_type_lock lock)

cdef enum:
    ACQUIRED = 1
    FOR_EVER = -1

cdef inline int acquire_lock(PyThread_type_lock lock) except -1:
    cdef int status = timed(lock, 0, 0)
    while status != ACQUIRED:
        with nogil:
            status = timed(lock, FOR_EVER, 1)
        if status != ACQUIRED:
            PyErr_CheckSignals()
    return 0

cdef inline bint try_lock(PyThread_type_lock lock):
    return timed(lock, 0, 0) == ACQUIRED

@cython.final
cdef class Mutex:
    cdef PyThread_type_lock _lock
    cpdef int acquire(self) except -1
    cpdef bint acquire_at_once(self) except -1
    cpdef int release(self) except -1
