cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef Py_ssize_t HEADS_MAX
cdef u64 _WORDS
cdef u64 _SLOT
cdef u64 _NUMBER
cdef u64 _DELIVER_US
cdef u64 _INFO
cdef unsigned char _GATHERED

@cython.final
cdef class Head:
    cdef readonly object type
    cdef readonly object key
    cdef readonly dict headers
    cdef readonly object timer
    cdef readonly bint wants_reply

@cython.final
cdef class Home:
    cdef readonly str path
    cdef readonly str id_prefix

@cython.final
@cython.freelist(1000)
cdef class Gathered:
    cdef readonly u64 number
    cdef public bytes data
    cdef readonly Head head
    cdef Home _home
    cdef u64 _slot
    cdef u64 _info
    cdef u64 _deliver_us
    cdef long long _enqueued_us
    cdef object _body
    cdef bint _is_decoded

    @cython.locals(codec=int)
    cdef object _decoded(self)

@cython.locals(i="Py_ssize_t", at=u64, meta=bytes, head=Head, message=Gathered, start="const unsigned char*")
cdef list _gathered(Home home, dict heads, const u64[::1] references, list metas, const unsigned char[::1] bodies,
                    const int[::1] body_ends, const long long[::1] enqueued_us, const unsigned char[::1] faults,
                    Py_ssize_t first, Py_ssize_t end)
