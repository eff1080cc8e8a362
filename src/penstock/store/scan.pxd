cimport cython
from penstock.store cimport checksum
from penstock.store cimport layout as L
from penstock.store cimport sorting
from penstock.store.kernel cimport Kernel

ctypedef unsigned long long u64
ctypedef unsigned int u32

cdef extern from *:
    void c_prefetch "__builtin_prefetch"(const void* address, int for_writing) nogil

cdef u64 _ENTRY
cdef u64 _AHEAD

cdef inline void _fetch(u64[::1] view, u64 at) noexcept nogil:
    c_prefetch(&view[at], 1)
    c_prefetch(&view[at + 8], 1)

cdef u64 _BATCH
cdef u64 _AT
cdef u64 _PLACE
cdef u64 _FOUND
cdef u64 _ROW
cdef u64 _SLOT
cdef u64 _NUMBER

@cython.final
cdef class Scan:
    cdef u64[::1] view
    cdef Kernel kernel
    cdef bint has_trees
    cdef u64 slots_at
    cdef u64 slots
    cdef u64 files
    cdef u64 signature
    cdef object order
    cdef u64 ordered
    cdef object batches
    cdef u64 batched
    cdef u64 last_base
    cdef u64 last_size
    cdef bint last_whole
    cdef readonly u64 records
    cdef readonly u64 highest
    cdef readonly u64 fresh
    cdef readonly u64 live
    cdef readonly list spilled
    cdef readonly list remembered
    cdef readonly list classed
    cdef readonly list lost
    cdef readonly list damaged
    cdef readonly list doubtful
    cdef u64 lists_at
    cdef object counts
    cdef object unsorted

    cpdef u64 find(self, const u64[::1] words, const unsigned char[::1] data, u64 first, u64 unit, u64 stop, u64 end,
                   u64[::1] found) except? 0
    @cython.locals(count=u64, at=u64, units=u64, to=u64, word=u64)
    cdef u64 _find(self, const u64[::1] words, const unsigned char[::1] data, u64 first, u64 unit, u64 stop, u64 end,
                   u64[::1] found) noexcept nogil
    @cython.locals(order="unsigned int[::1]", batches="unsigned long long[::1]", place=u64)
    cpdef u64 note(self, u64[::1] found, u64 count, u64 least, const u64[::1] old) except? 0
    @cython.locals(i=u64, slot=u64)
    cdef void _note_all(self, u64[::1] found, u64 count, u32[::1] order, u64[::1] batches, const u64[::1] old) noexcept nogil
    cdef int _grow(self, u64 most) except -1
    @cython.locals(at=u64, last=u64, size=u64, units=u64, number=u64, slot=u64, batch=u64, index=u64, place=u64,
                   seed=u32, check=u32, head="const unsigned char*", start=u64)
    cdef u64 _valid(self, const u64[::1] words, const unsigned char[::1] data, u64 first, u64 unit, u64 end) noexcept nogil
    @cython.locals(number=u64, where=u64, index=u64, slot=u64, last=u64, newest=u64, counts=bint)
    cdef void _note(self, u64[::1] found, u64 at, u32[::1] order, u64[::1] batches, const u64[::1] old) noexcept nogil
    @cython.locals(word=u64)
    cdef bint _was_given_up(self, const u64[::1] old, u64 slot, u64 number) noexcept nogil
    @cython.locals(batch=u64, n=u64)
    cdef void _take_back(self, u64 slot, u64 number, u64[::1] batches) noexcept nogil
    @cython.locals(n=u64)
    cdef void _note_batch(self, u64 base, u64 batch, u64[::1] batches) noexcept nogil

    @cython.locals(slot=u64, at=u64)
    cpdef int forget_batches(self) except -1
    @cython.locals(index=u64, slot=u64, at=u64)
    cpdef int believe_claim(self, const u64[::1] rows) except -1
    @cython.locals(batches="unsigned long long[::1]", slot=u64, at=u64, word=u64, number=u64, known=u64, state=u64, published=bint,
                   lives=bint, believed=bint, newest=u64)
    cpdef int decide(self, const u64[::1] old, bint tagged, bint filling) except -1
    @cython.locals(state=u64)
    cdef bint _is_word(self, u64 slot, u64 word) noexcept nogil
    @cython.locals(size=u64, base=u64)
    cdef bint _whole(self, u64 number, u64 batch, u64[::1] batches) noexcept
    @cython.locals(low=u64, high=u64, middle=u64, found=u64, given_up=u64)
    cdef u64 _count_batch(self, u64 base, u64 size, u64[::1] batches) noexcept
    @cython.locals(tag=u64, info=u64, before=u64, ours=bint)
    cdef int _keep(self, u64 slot, u64 at, u64 number, const u64[::1] old, bint same, bint tagged) except -1
    @cython.locals(at=u64, field=u64)
    cpdef int vacate(self, u64 slot, u64 number) except -1
    @cython.locals(at=u64, base=u64, size=u64, other=u64, number=u64, batch=u64, lives=bint)
    cpdef int give_up(self, u64 slot, const u64[::1] old) except -1
    @cython.locals(word=u64, state=u64, published=bint)
    cpdef bint was_published(self, u64 slot, u64 number, const u64[::1] old) noexcept
    cpdef int drop(self, u64 slot) except -1

    @cython.locals(which=u64)
    cpdef int link(self) except -1
    @cython.locals(word=u64)
    cdef bint _is_member(self, u64 slot, u64 at) noexcept
    @cython.locals(last=u64, used=u64, end=u64, open_gap=u64, gap=u64, n=u64, i=u64, slot=u64, at=u64, place=u64,
                   counts="unsigned long long[::1]", unsorted="unsigned long long[::1]")
    cdef int _link_ring(self, u32[::1] order) except -1
    @cython.locals(ends=u64)
    cdef int _link_gap(self, u64 before, u64 slot) except -1
    @cython.locals(top=u64, back=u64, slot=u64, at=u64)
    cdef int _link_vacant(self) except -1
    @cython.locals(which=u64, bit=u64, key=u64)
    cdef void _list(self, u64 slot, u64 at, u64[::1] counts, u64[::1] unsorted) noexcept
    @cython.locals(list_at=u64, before=u64, before_at=u64, last=u64, lane=u64, behind=u64, lane_at=u64)
    cdef bint _append(self, u64 slot, u64 at, u64 which, u64 key, u64 number) noexcept
    @cython.locals(keys="unsigned long long[::1]", members="unsigned int[::1]", slots="unsigned long long[::1]",
                   by_number=bint, bits=u64, least=u64, lane=u64)
    cdef int _link_list(self, u64 which, u64 count, u32[::1] order) except -1
    @cython.locals(by_number=bint, to=u64, last=u64, i=u64, slot=u64, at=u64, number=u64)
    cdef bint _gather(self, u64 which, u64[::1] keys, u32[::1] members, u32[::1] order) noexcept
    @cython.locals(i=u64)
    cdef void _spread(self, u64[::1] entries, u64[::1] keys, u32[::1] members, u64 count) noexcept
    @cython.locals(i=u64, slot=u64, at=u64, word=u64, key=u64)
    cdef void _append_all(self, u64 which, u64[::1] slots, u64 count) noexcept
    @cython.locals(head=u64)
    cdef void _set_ends(self, u64 at, u64 slot) noexcept

@cython.locals(which=u64)
cdef inline u64 _list_of(u64 info) noexcept
