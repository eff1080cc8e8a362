cimport cython
from libc.string cimport memcpy
from penstock.store cimport layout as L
from penstock.store cimport record
from penstock.store.hashes cimport Hashes

ctypedef unsigned long long u64

cdef extern from "Python.h":
    const char* text_of "PyUnicode_AsUTF8AndSize"(str text, Py_ssize_t* size) except NULL
    str new_text "PyUnicode_DecodeASCII"(const char* text, Py_ssize_t size, const char* errors)

cdef enum:
    HEX_DIGITS = 16
    PREFIX_MAX = 32

cdef inline char* _hex_before(char* end, u64 value) noexcept:
    while True:
        end -= 1
        end[0] = b"0123456789abcdef"[value & 15]
        value >>= 4
        if value == 0:
            return end

cdef inline str message_id(str prefix, u64 slot, u64 number):
    cdef char[PREFIX_MAX + 2 * HEX_DIGITS + 1] text
    cdef char* end = text + sizeof(text)
    cdef Py_ssize_t size
    cdef const char* start = text_of(prefix, &size)
    cdef char* at = _hex_before(end, number) - 1
    at[0] = b"-"
    at = _hex_before(at, slot)
    if size > PREFIX_MAX:
        raise ValueError(prefix)
    at -= size
    memcpy(at, start, size)
    return new_text(at, end - at, NULL)

@cython.final
cdef class Extra:
    cdef readonly dict fields
    cdef readonly u64 flags
    cdef readonly u64 key
    cdef readonly u64 until_us

@cython.final
@cython.freelist(1024)
cdef class Entry:
    cdef readonly bytes body
    cdef readonly bytes meta
    cdef readonly u64 deliver_us
    cdef readonly u64 info
    cdef unsigned int check
    cdef bytes spilled
    cdef u64 spilled_bytes
    cdef readonly object source
    cdef readonly u64 slot
    cdef readonly u64 number
    cdef readonly u64 unit
    cdef readonly u64 key
    cdef readonly u64 until_us
    cdef public int known
    cdef public u64 memory
    cdef public object moved
    cdef readonly u64 type_hash
    cdef readonly u64 key_hash

    cdef int classify(self, Hashes hashes) except -1
    cdef int spill(self) except -1
    cdef int refer(self, unsigned int check) except -1
    cdef int keep(self) except -1
    cdef int forget(self) except -1
    cpdef str id(self, str prefix)

cdef bint _is_bytes(object value) noexcept
cdef bint _is_int(object value) noexcept
cdef bint _is_draft(object value) except -1

cdef dict _imported

cpdef bint is_traced() except -1

@cython.locals(codec=u64, data=bytes, meta=bytes, deliver_us=u64, item=Entry, level=u64)
cpdef Entry entry(object body, u64 now_us, object deliver_at, object delay, object priority, object type, object key,
                  object headers, Extra extra=*)

cpdef Entry plain(object body)

@cython.locals(flags=u64, item=Entry)
cpdef Entry made(bytes data, u64 codec, bytes meta, u64 deliver_us, u64 level, Extra extra)

@cython.locals(item=Entry)
cdef Entry _fresh(bytes data, bytes meta, u64 deliver_us, u64 info)

cpdef Entry drafted(object draft, object body, u64 now_us, Extra extra)

@cython.locals(item=Entry)
cpdef Entry file_entry(object draft, object source, u64 now_us, Extra extra)

@cython.locals(items=list, extra=Extra)
cpdef list entries(object common, object bodies, u64 now_us, object extra_of)

@cython.locals(items=list, i=Py_ssize_t, body_bytes="const char*", meta_bytes="const char*", body=bytes, meta=bytes)
cpdef list ready_entries(const unsigned char[::1] bodies, const long long[::1] body_ends,
                         const unsigned char[::1] metas, const long long[::1] meta_ends,
                         const unsigned long long[::1] infos, const unsigned long long[::1] delivers)
