cimport cython

ctypedef unsigned long long u64

@cython.final
@cython.freelist(64)
cdef class Message:
    cdef readonly object _receiver
    cdef readonly int _codec
    cdef bytes _meta_bytes
    cdef object _meta
    cdef object _body
    cdef bytes _data
    cdef object _stored
    cdef readonly unsigned long long body_bytes
    cdef public bint _special
    cdef readonly unsigned long long slot
    cdef readonly unsigned long long number
    cdef readonly unsigned long long attempts
    cdef readonly unsigned long long deliver_us
    cdef readonly unsigned long long enqueued_us
    cdef readonly int priority
    cdef readonly unsigned long long last_attempt_us
    cdef public unsigned long long lease_us
    cdef readonly unsigned long long owner
    cdef public str state

@cython.locals(message=Message)
cpdef Message new_message(object receiver, u64 slot, u64 number, u64 attempts, u64 deliver_us, u64 enqueued_us,
                          int priority, int codec, bytes meta, bytes data, u64 last_attempt_us, u64 lease_us,
                          u64 owner, str state, object stored=*)
