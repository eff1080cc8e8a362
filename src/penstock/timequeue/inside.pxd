from penstock.timequeue.ids cimport taken_apart
from penstock.timequeue.leases cimport Consumer
from penstock.timequeue.opened cimport OpenQueue

cdef class Inside(OpenQueue):
    cdef readonly Consumer _consumer
    cdef readonly object _answers
    cdef readonly bint _sync
