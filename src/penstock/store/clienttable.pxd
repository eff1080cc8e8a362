cimport cython
from penstock.store cimport layout as L
from penstock.store.kernel cimport Kernel
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class ClientTable:
    cdef Kernel _kernel
    cdef Words _words

    @cython.locals(at=u64, incarnation=u64)
    cpdef u64 enter(self, u64 client, u64 pid, u64 now_us, u64 opened_us) except? 0
    @cython.locals(at=u64)
    cpdef int leave(self, u64 client) except -1
    @cython.locals(at=u64)
    cpdef void note(self, u64 client, u64 kind) noexcept
    cpdef u64 word(self, u64 client, u64 word) noexcept
    @cython.locals(slot=u64)
    cpdef bint fills(self, u64 client, u64 most) noexcept
    cdef u64 _at(self, u64 client) noexcept
