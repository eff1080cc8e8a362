cimport cython
from penstock.store cimport layout as L
from penstock.store.kernel cimport Kernel
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Offers:
    cdef Kernel _kernel
    cdef Words _words

    @cython.locals(wake=u64)
    cpdef int make(self, u64 client, u64 slot, u64 ticket, bint wake_all) except -1
    cpdef bint is_served(self, u64 client, u64 number) noexcept
    cpdef void take_back(self, u64 client) noexcept
    cpdef void withdraw(self, u64 client) noexcept
    @cython.locals(client=u64, offer=u64, late=u64, count=int)
    cpdef int serve(self, u64 number) except -1
    @cython.locals(slot=u64, number=u64)
    cdef int _serve(self, u64 client, u64 offer) except -1
    @cython.locals(incarnation=u64, owner=u64)
    cdef bint _is_filled_by(self, u64 client, u64 slot) noexcept
    cdef u64 _at(self, u64 client) noexcept
