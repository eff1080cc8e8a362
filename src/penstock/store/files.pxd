cimport cython
from penstock.store cimport layout as L
from penstock.store cimport rig
from penstock.store cimport syscalls
from penstock.store.record cimport Parts

ctypedef unsigned long long u64

cdef int CLOCK_REALTIME
cdef int CLOCK_BOOTTIME

cdef class Clock:
    cpdef u64 wall_us(self) except? 0
    cpdef u64 boot_us(self) except? 0

cpdef int sync_file(int fd) except -1
cpdef int write_all(int fd, bytes data, long long offset) except -1

@cython.final
cdef class Lock:
    cdef int _fd
    cdef object _queue
    cdef object _busy_s
    cpdef int acquire(self) except -1
    cpdef int acquire_at_once(self) except -1
    cpdef int release(self) except -1

@cython.final
cdef class ClientBytes:
    cdef int _own
    cdef int _probe
    cpdef bint take(self, long long client) except -1
    cpdef int leave(self, long long client) except -1
    cpdef bint alive(self, long long client) except -1

@cython.final
cdef class LocalFiles:
    cdef readonly object path
    cdef readonly str name
    cdef readonly str kernel_path
    cdef readonly object wakeup_path
    cdef readonly object kernel
    cdef readonly u64 data_units
    cdef readonly Lock lock
    cdef readonly ClientBytes clients
    cdef list _data
    cdef int _kernel_fd
    cdef list _closers
    cdef dict _stand_ins
    cdef int _bodies
    cdef u64 _first_end
    cdef u64 _mapped_end
    cdef object _regions
    cdef int _first_fd
    cdef object _first_map
    cdef const char* _first

    cdef int _point(self, const unsigned char[::1] view) except -1
    cpdef int write(self, u64 unit, bytes data) except -1
    cpdef int sync_data(self) except -1
    cpdef int sync_kernel(self) except -1
    cpdef bytes read(self, u64 unit, u64 units)
    cpdef int read_record(self, Parts parts, u64 unit, u64 units, u64 signature, u64 number, u64 slot) except -1
    cpdef u64 file_end(self, u64 unit) except? 0
