cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64

cdef u64 _ROW
cdef u64 _WORD_BYTES_MOST

cdef inline u64 _expected(const u64[::1] rows, u64 at, u64 number, u64 word) noexcept
@cython.locals(number=u64, at=u64, which=u64, word=u64, apart=u64, used=u64, alike=u64)
cdef u64 _pack(const u64[::1] rows, u64 first, u64 count, unsigned char[::1] room) except? 0
cdef inline u64 _write(u64 value, unsigned char[::1] room, u64 used) noexcept
@cython.locals(number=u64, behind=u64, alike=u64, i=u64, which=u64, word=u64, value=u64, apart=u64)
cdef u64 _unpack(const unsigned char[::1] data, u64 at, u64 end, u64[::1] rows, u64 count) except? 0
@cython.locals(i=u64)
cdef inline u64 _behind(const unsigned char[::1] data, u64 at, u64 end) noexcept
@cython.locals(value=u64)
cdef inline u64 _read(const unsigned char[::1] data, u64 at, u64 behind) noexcept
