cimport cython
from cpython.bytes cimport PyBytes_AS_STRING as start_of
from libc.string cimport memcpy as copy
from penstock.store cimport checksum
from penstock.store cimport layout as L

cdef extern from "Python.h":
    bytes new_bytes "PyBytes_FromStringAndSize"(const char* nothing, Py_ssize_t size)

ctypedef unsigned long long u64
ctypedef unsigned int u32

cpdef u32 crc32(bytes data, u32 start=*)
cdef u64 _word(const unsigned char* data, int index) noexcept
cdef u32 _placed(u32 check, u64 unit) noexcept
@cython.locals(kind=u64, flags=u64)
cdef u64 _kinds(u64 info, u64 meta_bytes) noexcept
@cython.locals(where=u64, sizes=u64, length=u64, last=u64, seed=u32)
cpdef bytes build(u64 signature, u64 number, u64 enqueued_us, u64 deliver_us, u64 slot, u64 batch, u64 index, u64 info,
                  bytes meta, bytes body, u32 body_check, u64 unit)
@cython.locals(check=u32, seed=u32, where=u64, sizes=u64, words="unsigned long long*")
cdef int build_at(unsigned char* to, u64 at, u64 signature, u64 number, u64 enqueued_us, u64 deliver_us, u64 slot,
                  u64 batch, u64 index, u64 info, const unsigned char* meta, u64 meta_bytes, const unsigned char* body,
                  u64 body_bytes, u64 unit) except -1
@cython.locals(data=bytes, words="unsigned long long*")
cdef bytes _assemble(u64 w0, u64 w1, u64 w2, u64 w3, u64 w4, u64 w5, u64 w6, u32 seed, bytes meta, bytes body)
@cython.locals(check=u32)
cdef void _set_head(unsigned long long* words, u64 w0, u64 w1, u64 w2, u64 w3, u64 w4, u64 w5, u64 w6,
                    u32 seed) noexcept

@cython.final
@cython.freelist(16)
cdef class Parts:
    cdef readonly u64 enqueued_us
    cdef readonly int flags
    cdef readonly int priority
    cdef readonly int codec
    cdef readonly bytes meta
    cdef readonly bytes body
    cdef readonly object fault

    cdef int clear(self, object fault) except -1
    @cython.locals(last=u64, where=u64, body_at=u64, end=u64, check=u32, seed=u32, payload=bytes)
    cdef bint read(self, const unsigned char* data, u64 size, u64 signature, u64 number, u64 slot, u64 unit) except -1
    cpdef bint read_bytes(self, bytes data, u64 signature, u64 number, u64 slot, u64 unit) except -1
