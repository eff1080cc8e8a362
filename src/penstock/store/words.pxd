cimport cython
from penstock.store cimport layout as L
from penstock.store cimport rig

cdef unsigned long long NOTED_ENTRIES

@cython.final
cdef class Words:
    cdef volatile unsigned long long* start
    cdef readonly object view
    cdef readonly str path
    cdef unsigned long long size
    cdef unsigned long long bad
    cdef readonly unsigned long long count
    cdef unsigned long long journal
    cdef unsigned long long capacity

    cdef unsigned long long transaction
    cdef unsigned long long[256] noted
    cdef unsigned long long[256] noted_in

    cdef inline unsigned long long load(self, unsigned long long index) noexcept:
        if index >= self.size:
            self.bad = index + 1
            return 0
        return self.start[index]

    cpdef void raw(self, unsigned long long index, unsigned long long value) noexcept
    cdef void _told(self, unsigned long long index, unsigned long long value) noexcept
    cpdef void put(self, unsigned long long index, unsigned long long value) noexcept
    @cython.locals(at="unsigned long long")
    cdef bint _is_noted(self, unsigned long long index) noexcept
    cpdef void add(self, unsigned long long index, long long delta) noexcept
    cpdef bint room(self) noexcept
    @cython.locals(index="unsigned long long")
    cpdef void touch(self) noexcept
    cpdef bint begin(self) except -1
    cpdef int commit(self) except -1
    cpdef int rollback(self) except -1
    cpdef int refuse(self) except -1
    @cython.locals(words="const unsigned long long[::1]")
    cdef int _point(self) except -1
