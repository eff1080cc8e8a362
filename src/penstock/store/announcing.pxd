cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Announcing:
    cdef Words words

    cdef void announce(self, u64 publisher, u64 batch) noexcept
    @cython.locals(publisher=u64)
    cdef int settle(self) except -1
    @cython.locals(first=u64, last=u64)
    cdef int _check(self, u64 publisher) except -1
