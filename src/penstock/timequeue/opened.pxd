from penstock.store.files cimport Clock
from penstock.timequeue.clients cimport Client
from penstock.timequeue.ids cimport taken_apart

cdef class OpenQueue:
    cdef object __weakref__
    cdef readonly object _path
    cdef readonly object _busy_s
    cdef readonly object _mapped
    cdef readonly Clock _clock
    cdef public bint _closed
    cdef public object _async_puts
    cdef public object _async_gets
    cdef readonly str _id_prefix
    cdef public Client _client

    cpdef Client _mine(self)
