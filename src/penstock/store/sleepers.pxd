cimport cython
from penstock.store cimport layout as L
from penstock.store.words cimport Words

ctypedef unsigned long long u64

@cython.final
cdef class Sleepers:
    cdef Words words

    cpdef u64 arm(self, u64 word) noexcept
    cpdef u64 arm_choosing(self) noexcept
    cpdef void disarm_choosing(self, u64 seen) noexcept
    cpdef void disarm(self, u64 word, u64 seen) noexcept
    @cython.locals(flag=u64)
    cpdef void watch(self, bint chooses) noexcept
    cpdef void watch_room(self) noexcept
    cdef bint anybody(self) noexcept
    cdef bint somebody_chooses(self) noexcept
    cdef bint anybody_for_room(self) noexcept
    cpdef void paid(self) noexcept
    @cython.locals(woken=u64, sleepers=u64)
    cdef void wake(self, u64 count) noexcept
    cdef void wake_for_room(self) noexcept
