cimport cython
from penstock.store cimport layout as L
from penstock.store cimport syscalls
from penstock.store.clienttable cimport ClientTable
from penstock.store.files cimport Clock, LocalFiles
from penstock.store.kernel cimport Kernel
from penstock.store.mutex cimport Mutex
from penstock.store.offers cimport Offers
from penstock.store.outcomes cimport Outcomes
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Client:
    cdef object __weakref__
    cdef readonly object path
    cdef readonly str name
    cdef object _mapped
    cdef readonly double busy_s
    cdef readonly Clock clock
    cdef readonly object options
    cdef Mutex mutex
    cdef readonly bint closed
    cdef readonly dict filling
    cdef readonly list leftovers
    cdef unsigned long holder
    cdef readonly LocalFiles files
    cdef readonly Words words
    cdef readonly Kernel kernel
    cdef readonly u64 signature
    cdef readonly str id_prefix
    cdef readonly object receivers
    cdef readonly object producers
    cdef readonly object syncs
    cdef readonly ClientTable table
    cdef readonly Offers offers
    cdef readonly object failures
    cdef readonly object begun
    cdef readonly dict offering
    cdef readonly object upkeep
    cdef readonly u64 opened_us
    cdef public u64 looked_us
    cdef readonly long long index
    cdef readonly u64 owner
    cdef readonly Outcomes outcomes
    cdef readonly object history

    @cython.locals(me="unsigned long")
    cpdef object take_turn(self, object work, tuple arguments)
    @cython.locals(me="unsigned long")
    cpdef object turn_at_once(self, object work, tuple arguments)
    cdef object _turn(self, unsigned long me, object work, tuple arguments, bint patient)
    cpdef int advance_rates(self, u64 now_us) except -1
    @cython.locals(now_us=u64)
    cpdef u64 done_us(self) except? 0
    cpdef bint is_filling(self, u64 slot, u64 number) except -1
    cpdef int discard_filling(self, u64 slot, u64 index) except -1
    @cython.locals(done=u64, index=u64)
    cpdef u64 return_from_dead(self) except? 0
