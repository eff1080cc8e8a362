cimport cython
from libc.string cimport memcpy as copy
from penstock.store cimport checksum
from penstock.store cimport layout as L

ctypedef unsigned long long u64
ctypedef unsigned int u32

cdef u64 _WORDS
cdef u64 _SLOT
cdef u64 _NUMBER
cdef u64 _PLACE
cdef unsigned char _GATHERED
cdef unsigned char _NOT_THERE

@cython.final
cdef class Collected:
    cdef readonly bytearray bodies
    cdef readonly object body_ends
    cdef readonly list metas
    cdef readonly object enqueued_us
    cdef readonly object flags
    cdef readonly object faults

@cython.final
cdef class Gather:
    cdef u64 signature
    cdef int files
    cdef u64[::1] firsts
    cdef u64[::1] ends
    cdef list views
    cdef const unsigned char* starts[64]
    cdef u64[7] head

    cdef int _point(self, const unsigned char[::1] view) except -1
    @cython.locals(i=u64, room=u64)
    cpdef Collected collect(self, const u64[::1] references, u64 first, u64 count, bint bodies)
    @cython.locals(i=u64, used=u64, at=u64, place=u64, unit=u64, size=u64, file=int, last=u64, meta=bytes,
                   body_bytes=u64, body_at=u64)
    cdef int _collect(self, const u64[::1] references, u64 first, u64 count, bint bodies, unsigned char[::1] data,
                      int[::1] ends, list metas, long long[::1] enqueued_us, unsigned char[::1] flags,
                      unsigned char[::1] faults) except -1
    @cython.locals(file=int)
    cdef int _file_of(self, u64 unit, u64 units) noexcept
    @cython.locals(at=u64, length=u64, record="const unsigned char*")
    cdef bint _read_head(self, int file, u64 unit, u64 slot, u64 number, u64 size) except -1
    @cython.locals(at=u64)
    cdef bytes _meta(self, int file, u64 unit, u64 size)
    @cython.locals(at=u64, body="const unsigned char*")
    cdef int _copy_body(self, int file, u64 unit, u64 body_at, u64 size, unsigned char[::1] data, u64 to) except -1
    @cython.locals(check=u32, place=u32)
    cdef u32 _check(self, bytes meta, unsigned char[::1] data, u64 at, u64 size, u64 unit) except? 0

@cython.locals(i=u64, at=u64, word=u64, state=u64)
cpdef int still_there(const u64[::1] words, u64 slots_at, const u64[::1] references, u64 first, u64 count,
                      unsigned char[::1] faults) except -1
@cython.locals(i="Py_ssize_t", meta=bytes)
cpdef int tell_apart(list metas, const unsigned char[::1] faults, dict known, int[::1] which) except -1
@cython.locals(i=u64, at=u64, used=u64)
cdef u64 _identify(const unsigned char[::1] prefix, u64 length, const u64[::1] references, u64 first, u64 count,
                   unsigned char[::1] data, int[::1] ends) except? 0
@cython.locals(digits=int, place=u64)
cdef u64 _put_hexadecimal(unsigned char[::1] data, u64 at, u64 value) except? 0
