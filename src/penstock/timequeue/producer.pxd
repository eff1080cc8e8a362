cimport cython
from penstock.store cimport layout as L
from penstock.store cimport record
from penstock.store.files cimport Clock, LocalFiles
from penstock.store.hashes cimport Hashes
from penstock.store.kernel cimport Kernel
from penstock.store.remembered cimport Remembered
from penstock.timequeue.clients cimport Client
from penstock.timequeue.commit cimport Commits
from penstock.timequeue.puts cimport Entry

ctypedef unsigned long long u64

cdef u64 _units(u64 payload_bytes) noexcept

@cython.final
cdef class Offered:
    cdef Client _client
    cdef Entry _item
    cpdef bint is_of(self, list batch) except -1

    cpdef bint make(self, u64 ticket) except -1
    cdef u64 _now_us(self) except? 0
    cpdef bint is_served(self) except -1
    cpdef bint is_done(self) except -1
    cpdef int take_back(self) except -1

@cython.final
cdef class Producer:
    cdef Client _client
    cdef Kernel _kernel
    cdef LocalFiles _files
    cdef Clock _clock
    cdef Commits _commits
    cdef readonly u64 _data_bytes
    cdef readonly u64 _spill_bytes
    cdef readonly u64 _direct_bytes_max
    cdef bint _has_trees
    cdef Hashes _hashes
    cdef bint _known
    cdef public object admit

    @cython.locals(first=Entry)
    cpdef int put(self, list items, bint sync, bint batch, object once=*) except -1
    cpdef bint put_at_once(self, Entry item) except -1
    @cython.locals(item=Entry)
    cdef bint _has_keys(self, list items) except -1
    @cython.locals(unknown=list, client=object)
    cdef int _put_unknown(self, list items, bint sync, bint batch, object once) except -1
    @cython.locals(item=Entry, found=list, keys=set)
    cdef list _unknown(self, list items, bint sync)
    @cython.locals(item=Entry, unsynced=list)
    cdef int _confirm_known(self, list items) except -1
    @cython.locals(item=Entry, first=Entry, firsts=dict)
    cdef int _say_known(self, list items, u64 count) except -1
    cpdef int _count_known(self, u64 count) except -1
    @cython.locals(item=Entry)
    cpdef int put_all(self, list items, bint sync, bint batch, object once=*) except -1
    @cython.locals(item=Entry, remembered=Remembered, known=bint, found=u64, being_put=list)
    cdef int _look_up(self, list items, u64 now_us) except -1
    @cython.locals(number=u64, entry=u64)
    cdef u64 _remember(self, Entry item, u64 slot, u64 now_us) except? 0
    @cython.locals(client=object)  # its methods are passed on
    cpdef object put_when_room(self, list items, double timeout_s, bint sync, object once)
    @cython.locals(item=Entry)
    cpdef bint may_try_again(self, list items) except -1
    @cython.locals(item=Entry)
    cdef int _classify(self, list items) except -1
    @cython.locals(item=Entry)
    cdef int _mark_batch(self, list items) except -1
    @cython.locals(item=Entry, small=bint)
    cdef int _put_now(self, list items, bint sync, bint batch, object once) except -1
    @cython.locals(item=Entry, client=Client, alone=bint, first=Entry)
    cdef int put_staged(self, list items, bint sync, bint batch, object once) except -1
    @cython.locals(now_us=u64, item=Entry, client=Client, first=Entry)
    cdef int _put_with_others(self, list items, bint sync, bint batch, object once) except -1
    @cython.locals(now_us=u64)
    cdef u64 begin(self) except? 0
    cpdef bint may_make_room_on_disk(self, object error) except -1
    @cython.locals(slot=Py_ssize_t, now_us=u64, kernel=Kernel, entry=u64)
    cpdef bint put_direct(self, Entry item) except -1
    @cython.locals(item=Entry, kernel=Kernel, now_us=u64)
    cpdef u64 _reserve(self, list items) except? 0
    @cython.locals(item=Entry, slot=Py_ssize_t, last=u64, kernel=Kernel, client=Client, entry=u64)
    cdef int _reserve_all(self, list items, u64 now_us) except -1
    @cython.locals(slot=Py_ssize_t, units=u64)
    cdef Py_ssize_t _take(self, Entry item) except? -9
    cdef u64 _used_bytes(self) noexcept
    cdef u64 _body_bytes(self, Entry item) noexcept
    cdef int _undo(self, Entry item) except -1
    @cython.locals(item=Entry, run=list, start=u64, following=u64, size_bytes=u64, index=u64, limit=u64, data=bytes,
                   most_bytes=u64)
    cpdef int _copy(self, list items, u64 now_us, bint sync, bint batch) except -1
    @cython.locals(item=Entry, first=Entry, start=u64, end=u64, runs=list)
    cdef list _ranges(self, list items)
    @cython.locals(length=u64)
    cdef int _copy_source(self, Entry item, bint sync) except -1
    cpdef int make_room(self, Entry item, u64 more_bytes) except -1
    cpdef bint _grow(self, Entry item, u64 more_bytes) except -1
    cpdef int _copy_one(self, list items, u64 now_us) except -1
    cdef bytes _record(self, Entry item, u64 now_us, u64 batch, u64 index)
    cpdef int _publish_committed(self, bint led, list items) except -1
    cpdef int _publish_once(self, bint led, tuple batch) except -1
    @cython.locals(first=Entry, last=Entry)
    cdef int _publish_synced(self, bint led, list items, object once) except -1
    @cython.locals(first=Entry, last=Entry)
    cpdef int _publish(self, list items, object once) except -1
    @cython.locals(item=Entry, latest_us=u64)
    cdef u64 _latest_us(self, list items) except? 0
    cdef int publish_synced(self, bint led, u64 first, u64 number, u64 last, u64 count, u64 latest_us,
                            object once) except -1
    @cython.locals(now_us=u64, wake=u64, publisher=u64, batch=u64)
    cdef int publish(self, u64 first, u64 last, u64 count, u64 latest_us, object once) except -1
    @cython.locals(item=Entry)
    cdef int check_sizes(self, list items) except -1
