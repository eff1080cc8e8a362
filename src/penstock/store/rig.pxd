cdef bint watching
cdef unsigned long long _fatal_step
cdef unsigned long long _steps

cdef void _step() noexcept
cdef int store(str path, unsigned long long index, unsigned long long value) except -1
cpdef int effect(object kind, object target, long long offset=*, bytes data=*) except -1
