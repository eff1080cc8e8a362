cimport cython
from penstock.store cimport layout as L
from penstock.store cimport rig
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.locals(slot=u64, at=u64, word=u64, changed=u64)
cpdef u64 write_published(Words words, const u64[::1] image, u64 slots_at, u64 first, u64 end) except? 1
@cython.locals(slot=u64, at=u64, word=u64, changed=u64)
cdef u64 _store_published(Words words, const u64[::1] image, u64 slots_at, u64 first, u64 end) noexcept nogil
@cython.locals(index=u64, changed=u64)
cpdef u64 write_back(Words words, const u64[::1] image, u64 first, u64 end) except? 1
@cython.locals(index=u64, changed=u64)
cdef u64 _store(Words words, const u64[::1] image, u64 first, u64 end) noexcept nogil
