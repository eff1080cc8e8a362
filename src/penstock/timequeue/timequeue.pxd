cimport cython
from penstock.message cimport Message
from penstock.timequeue.arguments cimport check_durability, check_most, check_several
from penstock.timequeue.clients cimport Client
from penstock.timequeue.inside cimport Inside
from penstock.timequeue.puts cimport Entry, entries, entry
from penstock.timequeue.leases cimport Consumer, Wanted
from penstock.timequeue.producer cimport Producer

ctypedef unsigned long long u64

cdef int WANTED_MAX

cdef bint _is_name(object value) noexcept

cdef class TimeQueue(Inside):
    cdef readonly Producer _producer
    cdef readonly object _specials
    cdef readonly object _moves
    cdef public object _asking
    cdef object _making
    cdef dict _wanted
    cdef readonly double _lease_s

    cpdef u64 _lease_us(self, object lease) except? 0
    cpdef bint _is_synced(self, object durability) except -1
    cpdef int _put(self, list items, object timeout, object durability, object once=*) except -1
    cpdef object _put_when_room(self, list items, double timeout, bint sync, object once=*)
    @cython.locals(chosen=Wanted)
    cpdef Wanted _chosen(self, object type, object key)
    @cython.locals(client=Client, chosen=Wanted)
    cdef list _receive(self, u64 most, object wait_s, object lease, object type, object key)
