cimport cython
from penstock.store cimport layout as L

ctypedef unsigned long long u64
ctypedef unsigned int u32

cdef u64 ENTRY
cdef u64 _DIGIT_BITS
cdef u64 _DIGITS

cpdef object memory(u64 words)

@cython.locals(least=u64, i=u64)
cdef u64 least_of(u64[::1] keys, u64 count) noexcept
@cython.locals(most=u64, i=u64)
cdef u64 most_of(u64[::1] keys, u64 count) noexcept
@cython.locals(i=u64)
cdef void pack(u64[::1] keys, u64 count, u64 least, u64 bits) noexcept
@cython.locals(one=u64, mask=u64, i=u64)
cdef void unpack(u64[::1] slots, u64 count, u32[::1] members, u64 bits) noexcept
@cython.locals(i=u64)
cdef void narrow(u64[::1] slots, u64 count) noexcept
@cython.locals(source="unsigned long long[::1]", target="unsigned long long[::1]", back=u64, word=u64, varied=u64,
               shift=u64)
cdef object sort(u64[::1] entries, u64 count, u64 width, u64 sorted_bits)
@cython.locals(varied=u64, falls=u64, i=u64)
cdef u64 _varied(u64[::1] entries, u64 count, u64 width, u64 word) noexcept
cdef int _move(u64[::1] source, u64[::1] target, u64 count, u64 width, u64 word, u64 shift) except -1
@cython.locals(i=u64, digit=u64, to=u64, field=u64)
cdef void _place(u64[::1] source, u64[::1] target, u64 count, u64 width, u64 word, u64 shift, u64[::1] places) noexcept
