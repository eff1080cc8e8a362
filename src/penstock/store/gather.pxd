cimport cython
from cpython.bytes cimport PyBytes_AS_STRING as start_of
from libc.string cimport memcmp as compare
from libc.string cimport memcpy as copy
from penstock.store cimport checksum
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef extern from "Python.h":
    bytes new_bytes "PyBytes_FromStringAndSize"(const char* nothing, Py_ssize_t size)

cdef extern from *:
    """
    /* A number without leading zeros; how many digits. */
    static inline unsigned long long penstock_hexadecimal(char *to, unsigned long long value) {
        int digits = 1;
        while (digits < 16 && value >> (4 * digits))
            digits++;
        for (int i = digits - 1; i >= 0; i--, value >>= 4)
            to[i] = "0123456789abcdef"[value & 0xF];
        return (unsigned long long)digits;
    }
    """
    u64 hexadecimal "penstock_hexadecimal"(char* to, u64 value) nogil

ctypedef unsigned int u32

cdef u64 _WORDS
cdef u64 _SLOT
cdef u64 _NUMBER
cdef u64 _PLACE
cdef unsigned char _GATHERED
cdef unsigned char _NOT_THERE
cdef u64 _RUN_UNITS_MAX
cdef u64 _RUN_UNITS_MIN
cdef u64 _RUN_GAP_UNITS

@cython.final
cdef class Collected:
    cdef readonly object bodies
    cdef readonly object body_ends
    cdef readonly list metas
    cdef readonly bint one_meta
    cdef readonly object enqueued_us
    cdef readonly object flags
    cdef readonly object faults

@cython.final
cdef class Gather:
    cdef u64 signature
    cdef int files
    cdef u64[::1] firsts
    cdef u64[::1] ends
    cdef list descriptors
    cdef list views
    cdef const unsigned char* starts[65]
    cdef u64[7] head

    cdef int _point(self, const unsigned char[::1] view) except -1
    @cython.locals(i=u64, room=u64)
    cpdef Collected collect(self, const u64[::1] references, u64 first, u64 count, bint bodies)
    @cython.locals(i=u64, used=u64, at=u64, place=u64, unit=u64, size=u64, file=int, last=u64, meta=bytes, one=bytes,
                   found=bytes,
                   body_bytes=u64, copies=bint, to="unsigned char*")
    cdef int _collect(self, const u64[::1] references, u64 first, u64 count, bint bodies, Collected gathered, object data,
                      int[::1] ends, list metas, long long[::1] enqueued_us, unsigned char[::1] flags,
                      unsigned char[::1] faults) except -1
    @cython.locals(place=u64, start=u64, behind=u64, limit=u64, j=u64, unit=u64, copied=u64)
    cdef bint _copy_run(self, int file, const u64[::1] references, u64 i, u64 end) except -1
    @cython.locals(file=int)
    cdef int _file_of(self, u64 unit, u64 units) noexcept
    @cython.locals(at=u64, length=u64, record="const unsigned char*")
    cdef bint _read_head(self, int file, u64 unit, u64 slot, u64 number, u64 size) except -1
    @cython.locals(at=u64)
    cdef bytes _meta(self, bytes before, int file, u64 unit, u64 size)
    @cython.locals(at=u64)
    cdef int _copy_body(self, int file, u64 unit, u64 body_at, u64 size, unsigned char* data, u64 to) except -1
    @cython.locals(check=u32, place=u32, start=u64, end=u64, run="const unsigned char*", head="const unsigned char*")
    cdef bint _is_whole(self, int file, u64 unit, bytes meta, const unsigned char* data, u64 at, u64 size) except -1

@cython.locals(i=u64, at=u64, word=u64, state=u64)
cpdef int still_there(const u64[::1] words, u64 slots_at, const u64[::1] references, u64 first, u64 count,
                      unsigned char[::1] faults) except -1
@cython.locals(i="Py_ssize_t", meta=bytes)
cpdef int tell_apart(list metas, const unsigned char[::1] faults, dict known, int[::1] which) except -1
@cython.locals(i=u64, at=u64, used=u64)
cdef int _identify(const char* prefix, u64 length, const u64[::1] references, u64 first, u64 count, char* data,
                   int[::1] ends) except -1
