cimport cython
from penstock.store cimport layout as L
from penstock.store.kernel cimport Kernel
from penstock.store.retained cimport Retained
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class IndexNotes:
    cdef Kernel kernel
    cdef Words words
    cdef Retained retained
    cdef u64 stats_at

    @cython.locals(number=u64)
    cpdef u64 begin(self, u64 sync) except? 0
    cpdef int end(self, u64 sync, u64 settled, u64 limit, u64 now_us) except -1
    @cython.locals(total=u64, word=u64)
    cpdef u64 changes(self) noexcept
    @cython.locals(slot=u64, client=u64, kernel=Kernel)
    cdef u64 _settled(self, u64 number) noexcept
