cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef u64 _ROW

@cython.locals(i=u64, word=u64, expected=u64, apart=u64, used=u64)
cdef u64 _pack(const u64[::1] rows, u64 first, u64 words, unsigned char[::1] room) except? 0
@cython.locals(i=u64, apart=u64, shift=int, byte=u64)
cdef u64 _unpack(const unsigned char[::1] data, u64 at, u64 end, u64[::1] rows, u64 words) except? 0
