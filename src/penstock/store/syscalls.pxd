# The C side of syscalls.py: the same calls without the interpreter's wrappers.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.pythread cimport PyThread_get_thread_ident as get_ident
from libc.errno cimport EACCES, EAGAIN, EINTR, ETIMEDOUT, errno

cdef extern from "<fcntl.h>" nogil:
    cdef struct c_flock "flock":
        short l_type
        short l_whence
        long long l_start
        long long l_len
        int l_pid
    int c_fcntl "fcntl"(int fd, int command, c_flock* request)
    short F_WRLCK
    short F_UNLCK

cdef extern from "<sys/file.h>" nogil:
    int c_flock_file "flock"(int fd, int operation)
    int LOCK_EX
    int LOCK_NB
    int LOCK_UN

cdef inline void errno_set(int code) noexcept:
    import_errno()[0] = code

cdef extern from "<errno.h>" nogil:
    int* import_errno "__errno_location"()

cdef extern from "<poll.h>" nogil:
    cdef struct c_pollfd "pollfd":
        int fd
        short events
        short revents
    int c_ppoll "ppoll"(c_pollfd* fds, unsigned long count, const c_timespec* span, const void* mask)
    short POLLIN

cdef extern from "<time.h>" nogil:
    cdef struct c_timespec "timespec":
        long long tv_sec
        long tv_nsec
    int c_clock_gettime "clock_gettime"(int clock, c_timespec* result)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t c_pwrite "pwrite"(int fd, const void* data, size_t size, long long offset)
    int c_fdatasync "fdatasync"(int fd)
    Py_ssize_t c_write "write"(int fd, const void* data, size_t size)
    Py_ssize_t c_read "read"(int fd, void* data, size_t size)

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_futex

cdef extern from "<unistd.h>" nogil:
    long c_syscall "syscall"(long number, void* address, int operation, unsigned int value, void* time, void* other,
                             unsigned int last)

cdef enum:
    FUTEX_WAIT = 0
    FUTEX_WAKE = 1

cdef enum:
    OFD_GETLK = 36
    OFD_SETLK = 37
    GIL_HELD_BYTES_MAX = 65536  # a longer write lets other threads run meanwhile

cdef inline bint try_lock_file(int fd) except -1:
    while c_flock_file(fd, LOCK_EX | LOCK_NB) != 0:
        if errno == EAGAIN:
            return False
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
            return -1
    return True

cdef inline int unlock_file(int fd) except -1:
    if c_flock_file(fd, LOCK_UN) != 0:
        PyErr_SetFromErrno(OSError)
        return -1
    return 0

cdef inline int _lock(int fd, short kind, long long start) except -1:
    cdef c_flock request
    request.l_type = kind
    request.l_whence = 0
    request.l_start = start
    request.l_len = 1
    request.l_pid = 0
    while c_fcntl(fd, OFD_SETLK, &request) != 0:
        if errno == EAGAIN or errno == EACCES:
            return 0
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
            return -1
    return 1

cdef inline bint try_lock(int fd, long long start) except -1:
    return _lock(fd, F_WRLCK, start)

cdef inline int unlock(int fd, long long start) except -1:
    return _lock(fd, F_UNLCK, start)

cdef inline bint locked_by_another(int fd, long long start) except -1:
    cdef c_flock request
    request.l_type = F_WRLCK
    request.l_whence = 0
    request.l_start = start
    request.l_len = 1
    request.l_pid = 0
    if c_fcntl(fd, OFD_GETLK, &request) != 0:
        PyErr_SetFromErrno(OSError)
        return -1
    return request.l_type != F_UNLCK

cdef inline Py_ssize_t write_at(int fd, bytes data, long long offset) except -1:
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t done
    while True:
        if size > GIL_HELD_BYTES_MAX:
            with nogil:
                done = c_pwrite(fd, start, size, offset)
        else:
            done = c_pwrite(fd, start, size, offset)
        if done >= 0:
            return done
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
            return -1

cdef inline unsigned long long clock_us(int clock) noexcept:
    cdef c_timespec now
    c_clock_gettime(clock, &now)
    return now.tv_sec * 1000000ULL + now.tv_nsec // 1000

cdef inline bint has_futex() noexcept:
    return True

cdef inline bint futex_wait(unsigned long long address, unsigned int seen, long long seconds,
                            long nanoseconds) except -1:
    cdef c_timespec span
    cdef long result
    cdef int code
    span.tv_sec = seconds
    span.tv_nsec = nanoseconds
    with nogil:
        result = c_syscall(SYS_futex, <void*>address, FUTEX_WAIT, seen, &span, NULL, 0)
        code = errno
    if result == -1 and code == EINTR:
        PyErr_CheckSignals()  # no interpreter comes by before the caller sleeps again
    return not (result == -1 and code == ETIMEDOUT)

cdef inline int futex_wake(unsigned long long address, unsigned int count) except -1:
    c_syscall(SYS_futex, <void*>address, FUTEX_WAKE, count, NULL, NULL, 0)
    return 0

cdef inline int sync_data(int fd) except -1:
    cdef int result, code
    while True:
        with nogil:
            result = c_fdatasync(fd)
            code = errno
        if result == 0:
            return 0
        if code != EINTR:
            errno_set(code)
            PyErr_SetFromErrno(OSError)
            return -1
        PyErr_CheckSignals()

cdef inline Py_ssize_t write_pipe(int fd, bytes data) except -2:
    cdef Py_ssize_t done
    while True:
        done = c_write(fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if done >= 0:
            return done
        if errno == EAGAIN:
            return -1
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
            return -2

cdef inline bytes read_pipe(int fd, Py_ssize_t most):
    cdef bytes room = PyBytes_FromStringAndSize(NULL, most)
    cdef Py_ssize_t done
    while True:
        done = c_read(fd, PyBytes_AS_STRING(room), most)
        if done >= 0:
            return room[:done]
        if errno == EAGAIN:
            return b""
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
            return None

cdef inline int poll_readable(c_pollfd* fds, int count, long long timeout_us) except -1:
    """How many have something to read; 0 after so long (-1: never), or when a signal came."""
    cdef c_timespec span
    cdef int found, code
    span.tv_sec = timeout_us // 1000000
    span.tv_nsec = timeout_us % 1000000 * 1000
    PyErr_CheckSignals()  # of one that came before: no interpreter came by since
    with nogil:
        found = c_ppoll(fds, count, NULL if timeout_us < 0 else &span, NULL)
        code = errno
    if found >= 0:
        return found
    if code != EINTR:
        errno_set(code)
        PyErr_SetFromErrno(OSError)
        return -1
    PyErr_CheckSignals()
    return 0
