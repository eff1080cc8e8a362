cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef int _TYPE
cdef int _KEY

@cython.locals(data=bytes)
cpdef u64 hash_of(str text, u64 secret, bint is_key) except? 0
cdef u64 _seed(u64 secret, bint is_key) noexcept
@cython.locals(mixed=u64, at=u64, word=u64, shift=int, byte=u64)
cdef u64 _hash(const unsigned char* data, u64 start, u64 end, u64 seed) noexcept

@cython.final
cdef class Hashes:
    cdef u64 secret
    cdef readonly u64 type_hash
    cdef readonly u64 key_hash

    cpdef bint read(self, bytes meta) except -1
    cdef bint read_at(self, const unsigned char* data, u64 size) noexcept
    @cython.locals(fields=int, at=u64, name=int, kind=int, length=u64)
    cdef void _read(self, const unsigned char* data, u64 size) noexcept
