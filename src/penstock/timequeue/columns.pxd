cimport cython
from cpython.bytes cimport PyBytes_AS_STRING as start_of
from libc.string cimport memset as clear
from penstock.store cimport layout as L
from penstock.store cimport record
from penstock.store.files cimport LocalFiles
from penstock.store.hashes cimport Hashes
from penstock.store.kernel cimport Kernel
from penstock.timequeue.clients cimport Client
from penstock.timequeue.commit cimport Commits
from penstock.timequeue.producer cimport Producer
from penstock.timequeue.puts cimport Entry, ready_entries

cdef extern from "Python.h":
    bytes new_bytes "PyBytes_FromStringAndSize"(const char* nothing, Py_ssize_t size)

ctypedef unsigned long long u64

cdef u64 NOT_NOW

@cython.final
cdef class Piece:
    cdef const unsigned char[::1] bodies
    cdef const long long[::1] body_ends
    cdef const unsigned char[::1] metas
    cdef const long long[::1] meta_ends
    cdef const u64[::1] infos
    cdef const u64[::1] delivers
    cdef const unsigned char* body_bytes
    cdef const unsigned char* meta_bytes
    cdef readonly Py_ssize_t count

    cdef u64 meta_size(self, Py_ssize_t i) noexcept
    cdef u64 body_size(self, Py_ssize_t i) noexcept
    cdef u64 size(self, Py_ssize_t i) noexcept
    cdef u64 units(self, Py_ssize_t i) noexcept
    cdef const unsigned char* meta(self, Py_ssize_t i) noexcept
    cdef const unsigned char* body(self, Py_ssize_t i) noexcept
    cdef list entries(self)

cdef const unsigned char* _start(const unsigned char[::1] data) except NULL

@cython.final
cdef class Columns:
    cdef list pieces
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t taken
    cdef u64 latest_us
    cdef u64[::1] slots
    cdef u64[::1] numbers
    cdef u64[::1] places
    cdef u64[::1] infos
    cdef list _made

    @cython.locals(made=list, i=Py_ssize_t, piece=Piece)
    cpdef list entries(self)
    cdef int begin(self) except -1
    @cython.locals(i=Py_ssize_t)
    cdef list placed(self)

cdef int _place(Entry item, u64 slot, u64 number) except -1

@cython.final
cdef class ColumnPuts:
    cdef Client _client
    cdef Producer _producer
    cdef Kernel _kernel
    cdef LocalFiles _files
    cdef Commits _commits
    cdef u64 _spill_bytes
    cdef bint _has_trees
    cdef Hashes _hashes

    @cython.locals(client=object)
    cpdef bint put(self, Columns columns, bint sync, object once) except -1
    @cython.locals(now_us=u64, batched=bint)
    cdef bint _put(self, Columns columns, bint sync, object once) except -1
    @cython.locals(piece=Piece, i=Py_ssize_t, units=u64, used=u64, kernel=Kernel, has_slots=bint)
    cdef bint _is_usual(self, Columns columns) except -1
    @cython.locals(now_us=u64)
    cpdef u64 _reserve(self, Columns columns, bint batched) except? 0
    @cython.locals(piece=Piece, i=Py_ssize_t, n=Py_ssize_t, last=u64, slot=Py_ssize_t, deliver_us=u64, info=u64,
                   kernel=Kernel, client=Client)
    cdef bint _reserve_all(self, Columns columns, u64 marks, u64 now_us) except -1
    @cython.locals(size=u64)
    cdef bint _has_class(self, Piece piece, Py_ssize_t i) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef int _give_up(self, Columns columns) except -1
    @cython.locals(piece=Piece, i=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t, start=u64, run_start=u64, run_end=u64)
    cdef list _copy(self, Columns columns, u64 now_us)
    @cython.locals(following=u64, limit=u64, most_units=u64)
    cdef Py_ssize_t _end_of_run(self, Columns columns, Piece piece, Py_ssize_t first, Py_ssize_t i) except -1
    @cython.locals(start=u64, size=u64, data=bytes, to="unsigned char*", done=u64, k=Py_ssize_t, n=Py_ssize_t, unit=u64,
                   at=u64, deliver_us=u64)
    cdef bytes _records(self, Columns columns, Piece piece, Py_ssize_t first, Py_ssize_t i, Py_ssize_t end, u64 now_us)
    @cython.locals(columns=Columns, last=u64, slot=u64, number=u64)
    cpdef int _publish_synced(self, bint led, tuple batch) except -1
    @cython.locals(last=u64)
    cpdef int _publish(self, Columns columns, object once) except -1
