cimport cython
from cpython.bytes cimport PyBytes_AS_STRING as start_of
from libc.string cimport memcpy

ctypedef unsigned long long u64
ctypedef unsigned int u32

cdef extern from "Python.h":
    bytes new_bytes "PyBytes_FromStringAndSize"(const char* nothing, Py_ssize_t size)

cdef Py_ssize_t _REQUEST_BYTES
cdef Py_ssize_t _RANGE_BYTES
cdef Py_ssize_t _ANSWER_BYTES
cdef Py_ssize_t _CONFCONF_BYTES
cdef u32 _REQUESTED
cdef u32 _ANSWERED
cdef u32 _CONFIRMED
cdef u64 _RANGES_MAX

cdef inline u32 _half(bytes data, Py_ssize_t at) noexcept:
    cdef u32 value
    memcpy(&value, start_of(data) + at, 4)
    return value

cdef inline u64 _word(bytes data, Py_ssize_t at) noexcept:
    cdef u64 value
    memcpy(&value, start_of(data) + at, 8)
    return value

cdef inline bytes _request(u32 client, u32 channel, u64 serial, u64 offset, u64 length):
    cdef bytes data = new_bytes(NULL, 40)
    cdef u32* halves = <u32*>start_of(data)
    cdef u64* words = <u64*>start_of(data)
    halves[0] = _REQUESTED
    halves[1] = client
    halves[2] = channel
    halves[3] = 1
    words[2] = serial
    words[3] = offset
    words[4] = length
    return data

cdef inline bytes _answer(u64 serial, u32 code):
    cdef bytes data = new_bytes(NULL, 16)
    cdef u32* halves = <u32*>start_of(data)
    halves[0] = _ANSWERED
    halves[1] = code
    (<u64*>start_of(data))[1] = serial
    return data

cdef inline bytes _confconf(u32 client, u32 channel, u64 serial):
    cdef bytes data = new_bytes(NULL, 20)
    cdef u32* halves = <u32*>start_of(data)
    halves[0] = _CONFIRMED
    halves[1] = client
    halves[2] = channel
    memcpy(start_of(data) + 12, &serial, 8)
    return data

@cython.final
@cython.freelist(1024)
cdef class Request:
    cdef readonly u64 client
    cdef readonly u64 channel
    cdef readonly u64 serial
    cdef readonly tuple ranges

    cpdef tuple who(self)

cpdef bytes request_frame(u32 client, u32 channel, u64 serial, object ranges)
cpdef bytes answer_frame(u64 serial, u32 code)
cpdef bytes confconf_frame(u32 client, u32 channel, u64 serial)
@cython.locals(at=Py_ssize_t)
cpdef bint has_answer(bytes data, u64 wanted) except -1

@cython.final
cdef class Requests:
    cdef bytes _rest

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, first=Py_ssize_t, count=u64, found=list, ranges=list)
    cpdef list take(self, bytes data)

@cython.final
cdef class Confirmations:
    cdef bytes _rest

    @cython.locals(at=Py_ssize_t, found=list)
    cpdef list take(self, bytes data)
