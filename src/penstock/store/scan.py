# cython: boundscheck=False, wraparound=False
"""Owns the loops of a restore that go over every record and every slot: find, decide, link. Compiled, without a Python
object for each message.

Works on a private image of the new kernel, which is also its table: while the scan runs, a slot of the image holds what
the newest record that names it says. Slots are in no order of anything else, so where the loops go from slot to slot,
those that come next are fetched ahead. Never touches a file, and never writes to a mapping.
"""

from array import array
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import checksum, sorting
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.kernel import Kernel

# Words of a slot of the image that mean something else until ``decide`` and ``link`` are through.
_BATCH = L.S_LINKS  # records of its batch, and its index there (pair)
_AT = L.S_GAP  # where in ``order`` it is

_ENTRY = sorting.ENTRY
_AHEAD = 16  # slots from now, one is fetched into the cache

_FOUND = L.RECORD_WORDS  # of a record that was found: those of its header, but for the first
_PLACE = L.R_SIGNATURE  # which says where it is, as in a slot

_ROW = G.REFERENCE_WORDS  # words of a claim's reference
_SLOT = G.F_SLOT
_NUMBER = G.F_NUMBER

if not cython.compiled:  # where it is compiled, the one in scan.pxd goes into every caller

    def _fetch(view: Any, at: int) -> None:
        """Begin to bring the slot at a word into the cache."""


class Scan:
    """The records of a queue's data files, and what becomes of its slots."""

    def __init__(self, image: Any, kernel: Kernel, files: int, signature: int) -> None:
        self.view = image
        self.kernel = kernel
        self.slots_at = kernel.slots_at
        self.slots = kernel.slots
        self.files = files
        self.signature = signature
        self.order = array("I")  # slots by place: sentinels, and every record that counted when it was found
        self.ordered = 0
        self.batches = array("Q")  # (first number, records of the batch << 32 | found, given up): neighbours in one
        self.batched = 0
        self.last_base = 0  # the batch that was last looked for, and whether it is whole
        self.last_size = 0
        self.last_whole = False
        self.records = 0
        self.highest = 0  # number
        self.fresh = files + 1
        self.lists_at = image[L.H_LISTS_AT]
        self.counts = array("Q", bytes(8 * L.LISTS))  # messages of each list
        self.unsorted = array("Q", bytes(8 * L.LISTS))  # not zero: not in the order of places
        self.live = 0
        self.spilled: list[int] = []  # live slots whose body is a file
        self.remembered: list[int] = []  # live slots whose meta says what they are remembered by
        self.has_trees = kernel.trees_at != 0
        self.classed: list[int] = []  # live slots whose message may have a type or a key: only its meta says so
        self.lost: list[int] = []  # slots whose word says that there is a message, and there is none
        self.damaged: list[int] = []  # slots whose word is not one
        self.doubtful: list[int] = []  # live slots with attempts of another message that has the same tag

    # ------------------------------------------------------------ finding

    def begin_file(self, sentinel: int) -> None:
        """Records found from here on are in the file with this sentinel slot."""
        self._grow(1)
        self.order[self.ordered] = sentinel
        self.ordered += 1

    def find(self, words: Any, data: Any, first: int, unit: int, stop: int, end: int, found: Any) -> int:
        """Look for records that start in units ``unit`` to ``stop`` of a file that begins at unit ``first`` of all and
        has ``end``; how many. ``words`` and ``data`` are the file as words and as bytes, ``found`` has room for what is
        to be noted. Changes nothing else, so that several threads can look, at the same time.

        A valid record is skipped as a whole: nothing was written inside it since, or its checksum would not hold.
        """
        if cython.compiled:
            with cython.nogil:
                return self._find(words, data, first, unit, stop, end, found)
        return self._find(words, data, first, unit, stop, end, found)

    def _find(self, words: Any, data: Any, first: int, unit: int, stop: int, end: int, found: Any) -> int:
        count = 0
        while unit < stop:
            at = unit * L.UNIT_WORDS
            if words[at] == self.signature:
                units = self._valid(words, data, first, unit, end)
                if units != 0:
                    to = count * _FOUND
                    found[to + _PLACE] = ((first + unit) << L.PLACE_SHIFT) | units
                    for word in range(L.R_NUMBER, _FOUND):
                        found[to + word] = words[at + word]
                    count += 1
                    unit += units
                    continue
            unit += 1
        return count

    def note(self, found: Any, count: int, least: int, old: Any) -> int:
        """Take down what ``find`` found, file by file in the order of places, from unit ``least`` of all on; the unit
        behind the last record. If a record starts before it, inside another, nothing is taken down, and 0."""
        if count > 0 and found[_PLACE] >> L.PLACE_SHIFT < least:
            return 0
        self._grow(count)
        order = self.order
        batches = self.batches
        if cython.compiled:
            with cython.nogil:  # those who look for records need it to say what they found
                self._note_all(found, count, order, batches, old)
        else:
            self._note_all(found, count, order, batches, old)
        if count > 0:
            place = found[(count - 1) * _FOUND + _PLACE]
            least = (place >> L.PLACE_SHIFT) + (place & L.PLACE_MASK)
        return least

    def _note_all(self, found: Any, count: int, order: Any, batches: Any, old: Any) -> None:
        for i in range(count):
            if i + _AHEAD < count:
                slot = found[(i + _AHEAD) * _FOUND + L.R_SLOT_BATCH] & L.MASK32
                _fetch(self.view, self.slots_at + slot * L.SLOT_WORDS)
            self._note(found, i * _FOUND, order, batches, old)

    def _grow(self, most: int) -> None:
        if len(self.order) < self.ordered + most:
            self.order.frombytes(bytes(self.order.itemsize * most))
        if len(self.batches) < self.batched + 2 * _ENTRY * most:  # each may note one and take another back
            self.batches.frombytes(bytes(self.batches.itemsize * 2 * _ENTRY * most))

    def _valid(self, words: Any, data: Any, first: int, unit: int, end: int) -> int:
        """How many units the record at ``unit`` takes; 0 if it is none."""
        at = unit * L.UNIT_WORDS
        last = words[at + L.R_META_CHECK]
        size = (last & L.META_BYTES_MAX) + (words[at + L.R_INDEX_LENGTH] >> 32)
        units = (L.RECORD_BYTES + size + L.UNIT_BYTES - 1) // L.UNIT_BYTES
        number = words[at + L.R_NUMBER]
        slot = words[at + L.R_SLOT_BATCH] & L.MASK32
        batch = words[at + L.R_SLOT_BATCH] >> 32
        index = words[at + L.R_INDEX_LENGTH] & L.MASK32
        if units > L.UNITS_MAX or unit + units > end or slot <= self.files or slot >= self.slots:
            return 0
        if index >= batch or number <= index or number > L.MASK48:
            return 0
        place = first + unit
        seed = (place ^ (place >> 32)) & L.MASK32
        if cython.compiled:
            head = cython.cast("const unsigned char*", cython.address(words[at]))
            seed ^= checksum.crc32(head + L.RECORD_BYTES, size, 0)
            check = checksum.crc32(head, L.RECORD_BYTES - 4, seed)
        else:
            start = unit * L.UNIT_BYTES
            seed ^= checksum.crc32(data[start + L.RECORD_BYTES : start + L.RECORD_BYTES + size], size, 0)
            check = checksum.crc32(data[start : start + L.RECORD_BYTES], L.RECORD_BYTES - 4, seed)
        return units if check == last >> 32 else 0

    def _note(self, found: Any, at: int, order: Any, batches: Any, old: Any) -> None:
        number = found[at + L.R_NUMBER]
        where = found[at + L.R_SLOT_BATCH]
        index = found[at + L.R_INDEX_LENGTH] & L.MASK32
        last = found[at + L.R_META_CHECK]
        self.records += 1
        slot = self.slots_at + (where & L.MASK32) * L.SLOT_WORDS
        self.view[slot + L.S_LEASE_US] = 0  # which it is; a page that is read before it is written costs two faults
        newest = self.view[slot + L.S_WORD]
        # The slot of a batch that was synced and published is used again only after an index sync, which knows the
        # others. So a record of such a batch with a newer one of its slot says nothing for them: it was given up. Of
        # other batches every record counts: a restore that writes the slot's newer number must find what it found.
        counts = not (last >> 16) & L.FLAG_BATCHED or (
            number >= newest and not self._was_given_up(old, where & L.MASK32, number)
        )
        if where >> 32 > 1 and counts:
            self._note_batch(number - index, where >> 32, batches)
        if number <= newest:
            return  # an earlier message of this slot
        if newest != 0 and not self._was_given_up(old, where & L.MASK32, newest):
            self._take_back(slot, newest, batches)
        self.view[slot + L.S_WORD] = number
        self.view[slot + L.S_DELIVER_US] = found[at + L.R_DELIVER_US]
        self.view[slot + L.S_ENQUEUED_US] = found[at + L.R_ENQUEUED_US]
        self.view[slot + L.S_PLACE] = found[at + _PLACE]
        self.view[slot + L.S_INFO] = (
            (((last >> 16) & 0xFF) << L.FLAGS_SHIFT) | (((last >> 28) & 0xF) << L.CODEC_SHIFT) | ((last >> 24) & 0xF)
        )
        if self.has_trees and last & L.META_BYTES_MAX:  # put before the queue had trees, its record does not say it
            self.view[slot + L.S_INFO] |= L.FLAG_CLASSED << L.FLAGS_SHIFT
        self.view[slot + _BATCH] = (where >> 32) | (index << 32)
        self.view[slot + _AT] = self.ordered
        order[self.ordered] = where & L.MASK32
        self.ordered += 1

    def _was_given_up(self, old: Any, slot: int, number: int) -> bool:
        """A slot of a published batch keeps its number until its word is on disk; one that is given up gets another."""
        word = old[self.slots_at + slot * L.SLOT_WORDS]
        return word >> L.NUMBER_SHIFT > number and self._is_word(slot, word)

    def _take_back(self, slot: int, number: int, batches: Any) -> None:
        """A record that was noted for this slot has a newer one."""
        batch = self.view[slot + _BATCH]
        if batch & L.MASK32 > 1 and (self.view[slot + L.S_INFO] >> L.FLAGS_SHIFT) & L.FLAG_BATCHED:
            n = self.batched
            batches[n] = number - (batch >> 32)
            batches[n + 1] = (batch & L.MASK32) << 32
            batches[n + 2] = 1
            self.batched = n + _ENTRY

    def _note_batch(self, base: int, batch: int, batches: Any) -> None:
        n = self.batched
        if n > 0 and batches[n - _ENTRY] == base and batches[n - _ENTRY + 1] >> 32 == batch:
            batches[n - _ENTRY + 1] += 1
            return
        batches[n] = base
        batches[n + 1] = (batch << 32) | 1
        batches[n + 2] = 0
        self.batched = n + _ENTRY

    # ------------------------------------------------------------ deciding

    def forget_batches(self) -> None:
        """Every record stands for itself: where the kernel was lost, a batch of which some were acknowledged, and their
        room used again, cannot be told from one that was cut."""
        for slot in range(self.files + 1, self.slots):
            at = self.slots_at + slot * L.SLOT_WORDS
            if self.view[at] != 0:
                self.view[at + _BATCH] = 1

    def believe_claim(self, rows: Any) -> None:
        """Messages that a claim on disk names were published: their records stand for themselves, whatever became of
        others of their batches. Some may be gone since, which their words say."""
        for index in range(len(rows) // _ROW):
            slot = rows[index * _ROW + _SLOT]
            if self.files < slot < self.slots:
                at = self.slots_at + slot * L.SLOT_WORDS
                if self.view[at] == rows[index * _ROW + _NUMBER]:
                    self.view[at + _BATCH] = 1

    def decide(self, old: Any, tagged: bool, filling: bool) -> None:
        """What becomes of each slot, by its newest record and its word in the ``old`` kernel.

        ``tagged``: attempts are believed only where the tag says whose they are. ``filling``: a record that is newer
        than its slot's word, or was being filled by it, decides; otherwise the word is right: nobody published it.
        """
        batches = sorting.sort(self.batches, self.batched // _ENTRY, _ENTRY, 0)
        for slot in range(self.files + 1, self.slots):
            at = self.slots_at + slot * L.SLOT_WORDS
            word = old[at]
            number = self.view[at]
            if word == 0 and number == 0:
                continue
            while self.fresh < slot:  # never used as far as is known, but below one that was
                self.vacate(self.fresh, 0)
                self.fresh += 1
            self.fresh = slot + 1
            known = word >> L.NUMBER_SHIFT
            state = (word >> L.STATE_SHIFT) & 0xF
            believed = word == 0 or self._is_word(slot, word)
            if word == 0 or not believed:
                if word:
                    self.damaged.append(slot)
                known = 0
                state = L.STATE_NEW
            published = state == L.STATE_WAITING or state == L.STATE_PENDING or state == L.STATE_CLAIMED
            if (filling or not believed) and (number > known or (number == known and state == L.STATE_FILLING)):
                lives = self._whole(number, self.view[at + _BATCH], batches)
            else:
                lives = number == known and published
                if published and not lives:
                    self.lost.append(slot)
            if lives:
                self._keep(slot, at, number, old, published and number == known, tagged)
            else:
                newest = number if number > known else known
                # Never published, which only the old kernel knew: from here on the word says that it was given up.
                self.vacate(slot, newest + 1 if state == L.STATE_FILLING and not filling else newest)

    def _is_word(self, slot: int, word: int) -> bool:
        state = (word >> L.STATE_SHIFT) & 0xF
        return (L.STATE_VACANT <= state <= L.STATE_PENDING or state == L.STATE_CLAIMED) and self.kernel.word_of(
            slot, word >> L.NUMBER_SHIFT, state
        ) == word

    def _whole(self, number: int, batch: int, batches: Any) -> bool:
        """Whether all records of this one's batch were found, wherever."""
        size = batch & L.MASK32
        if size == 1:
            return True
        base = number - (batch >> 32)
        if base != self.last_base or size != self.last_size:  # neighbours are often of one batch
            self.last_base = base
            self.last_size = size
            self.last_whole = self._count_batch(base, size, batches) == size
        return self.last_whole

    def _count_batch(self, base: int, size: int, batches: Any) -> int:
        low = 0
        high = self.batched // _ENTRY
        while low < high:
            middle = (low + high) // 2
            if batches[middle * _ENTRY] < base:
                low = middle + 1
            else:
                high = middle
        found = given_up = 0
        while low * _ENTRY < self.batched and batches[low * _ENTRY] == base:
            if batches[low * _ENTRY + 1] >> 32 == size:
                found += batches[low * _ENTRY + 1] & L.MASK32
                given_up += batches[low * _ENTRY + 2]
            low += 1
        return found - given_up

    def _keep(self, slot: int, at: int, number: int, old: Any, same: bool, tagged: bool) -> None:
        """The slot's message lives. ``same``: the old words of the slot are about it."""
        tag = number & L.TAG_MASK
        info = self.view[at + L.S_INFO] | (tag << L.TAG_SHIFT)
        before = old[at + L.S_INFO]
        ours = (before >> L.TAG_SHIFT) & L.TAG_MASK == tag
        if same and (ours or not tagged):
            info |= (before >> L.ATTEMPTS_SHIFT) << L.ATTEMPTS_SHIFT
            self.view[at + L.S_ATTEMPT_US] = old[at + L.S_ATTEMPT_US]
        elif ours and (before >> L.ATTEMPTS_SHIFT != 0 or old[at + L.S_ATTEMPT_US] != 0):
            self.doubtful.append(slot)
        self.view[at + L.S_INFO] = info
        self.view[at + L.S_WORD] = self.kernel.word_of(slot, number, L.STATE_WAITING)
        if number > self.highest:
            self.highest = number
        self.live += 1
        if (info >> L.FLAGS_SHIFT) & L.FLAG_SPILLED:
            self.spilled.append(slot)
        if (info >> L.FLAGS_SHIFT) & L.FLAG_REMEMBERED:
            self.remembered.append(slot)
        if (info >> L.FLAGS_SHIFT) & L.FLAG_CLASSED:
            self.classed.append(slot)

    def vacate(self, slot: int, number: int) -> None:
        """The slot's message is gone. The number stays, so that its records stay gone as well."""
        at = self.slots_at + slot * L.SLOT_WORDS
        for field in range(L.SLOT_WORDS):
            self.view[at + field] = 0
        self.view[at] = self.kernel.word_of(slot, number, L.STATE_VACANT)
        if number > self.highest:
            self.highest = number

    def give_up(self, slot: int, old: Any) -> None:
        """A message, and the rest of its batch, live by their records alone and were never published: they are gone."""
        at = self.slots_at + slot * L.SLOT_WORDS
        base = (self.view[at] >> L.NUMBER_SHIFT) - (self.view[at + _BATCH] >> 32)
        size = self.view[at + _BATCH] & L.MASK32
        for other in range(self.files + 1, self.slots):
            at = self.slots_at + other * L.SLOT_WORDS
            number = self.view[at] >> L.NUMBER_SHIFT
            batch = self.view[at + _BATCH]
            lives = (self.view[at] >> L.STATE_SHIFT) & 0xF == L.STATE_WAITING
            lives = lives and batch & L.MASK32 == size and number - (batch >> 32) == base
            if lives and not self.was_published(other, number, old):
                self.drop(other)

    def was_published(self, slot: int, number: int, old: Any) -> bool:
        """Whether the old word of a slot says that this message was."""
        word = old[self.slots_at + slot * L.SLOT_WORDS]
        state = (word >> L.STATE_SHIFT) & 0xF
        published = state == L.STATE_WAITING or state == L.STATE_PENDING or state == L.STATE_CLAIMED
        return published and bool(word == self.kernel.word_of(slot, number, state))

    def drop(self, slot: int) -> None:
        """A message that was kept is gone after all."""
        self.live -= 1
        self.vacate(slot, self.view[self.slots_at + slot * L.SLOT_WORDS] >> L.NUMBER_SHIFT)

    # ------------------------------------------------------------ linking

    def link(self) -> None:
        """Ring, gaps, stack of vacant slots and lists, from what was decided."""
        self._link_ring(self.order)
        self._link_vacant()
        for which in range(L.LIST_LEASES):
            if self.unsorted[which]:
                self._link_list(which, self.counts[which], self.order)
        self.view[L.H_FRESH] = self.fresh
        self.view[L.H_WAITING] = self.live

    def _is_member(self, slot: int, at: int) -> bool:
        """Whether entry ``at`` of the order is a sentinel's or that of a message's own record."""
        if slot <= self.files:
            return True
        word = self.slots_at + slot * L.SLOT_WORDS
        return bool((self.view[word] >> L.STATE_SHIFT) & 0xF == L.STATE_WAITING and self.view[word + _AT] == at)

    def _link_ring(self, order: Any) -> None:
        """In the order of places, in which they were found. The last gap is the cursor's, the others form a list.

        On the way messages are appended to their lists, since the order of places is often that of numbers.
        """
        counts = self.counts
        unsorted = self.unsorted
        last = used = end = open_gap = gap = 0
        n = 0
        for i in range(self.ordered):
            if i + _AHEAD < self.ordered:
                _fetch(self.view, self.slots_at + order[i + _AHEAD] * L.SLOT_WORDS)
            slot = order[i]
            if not self._is_member(slot, i):
                continue
            order[n] = slot
            n += 1
            at = self.slots_at + slot * L.SLOT_WORDS
            place = self.view[at + L.S_PLACE]
            self.view[at + L.S_GAP] = 0
            if last:
                if place >> L.PLACE_SHIFT > end:
                    if open_gap:
                        self._link_gap(gap, open_gap)
                        gap = open_gap
                    open_gap = last
                self.view[self.slots_at + last * L.SLOT_WORDS + L.S_RING] |= slot
            self.view[at + L.S_RING] = last << 32
            if slot > self.files:
                self._list(slot, at, counts, unsorted)
            used += place & L.PLACE_MASK
            end = (place >> L.PLACE_SHIFT) + (place & L.PLACE_MASK)
            last = slot
        if self.view[L.H_DATA_UNITS] > end:
            if open_gap:
                self._link_gap(gap, open_gap)
            open_gap = last
        self.view[self.slots_at + last * L.SLOT_WORDS + L.S_RING] |= 1
        self.view[self.slots_at + L.SLOT_WORDS + L.S_RING] |= last << 32
        self.view[L.H_USED_UNITS] = used
        self.view[L.H_CURSOR] = open_gap if open_gap else last
        self.ordered = n

    def _link_gap(self, before: int, slot: int) -> None:
        ends = self.view[L.H_GAPS]
        if before:
            self.view[self.slots_at + before * L.SLOT_WORDS + L.S_GAP] |= slot
            self.view[L.H_GAPS] = (ends & L.MASK32) | (slot << 32)
        else:
            self.view[L.H_GAPS] = slot | (slot << 32)
        self.view[self.slots_at + slot * L.SLOT_WORDS + L.S_GAP] = before << 32

    def _link_vacant(self) -> None:
        top = 0
        for back in range(self.fresh - self.files - 1):
            slot = self.fresh - 1 - back
            at = self.slots_at + slot * L.SLOT_WORDS
            if (self.view[at] >> L.STATE_SHIFT) & 0xF == L.STATE_VACANT:
                self.view[at + L.S_CHAIN] = top
                top = slot
        self.view[L.H_VACANT] = top

    def _list(self, slot: int, at: int, counts: Any, unsorted: Any) -> None:
        which = _list_of(self.view[at + L.S_INFO])
        bit = 1  # a full word in the compiled core
        if counts[which] == 0:
            self.view[L.H_PRESENT] |= bit << which
        counts[which] += 1
        if not unsorted[which]:
            key = self.view[at + L.S_DELIVER_US] if which >= L.LIST_TIMED else 0
            if not self._append(slot, at, which, key, self.view[at] >> L.NUMBER_SHIFT):
                unsorted[which] = 1

    def _append(self, slot: int, at: int, which: int, key: int, number: int) -> bool:
        """Link a slot behind the others of its list; False if it does not belong there."""
        list_at = self.lists_at + which * L.LIST_WORDS
        before = self.view[list_at] >> 32
        if before:
            before_at = self.slots_at + before * L.SLOT_WORDS
            last = self.view[before_at + L.S_DELIVER_US] if which >= L.LIST_TIMED else 0
            if last > key or (last == key and self.view[before_at] >> L.NUMBER_SHIFT > number):
                return False
            self.view[before_at + L.S_LINKS] |= slot
        self.view[at + L.S_LINKS] = before << 32
        self._set_ends(list_at, slot)
        for lane in range(1, self.kernel.order.level(number) + 1):
            behind = self.view[list_at + lane] >> 32
            if behind:
                lane_at = self.slots_at + behind * L.SLOT_WORDS + L.S_LANES + ((lane - 1) >> 1)
                self.view[lane_at] |= (slot << 32) if lane & 1 == 0 else slot
            self._set_ends(list_at + lane, slot)
        self.view[list_at + L.LIST_COUNT] += 1
        return True

    def _link_list(self, which: int, count: int, order: Any) -> None:
        """A list whose order is not that of places: its ``count`` messages are sorted, and linked anew."""
        keys = sorting.memory(count)
        members = array("I", bytes(4 * count))
        by_number = self._gather(which, keys, members, order)
        bits = count.bit_length()
        least = sorting.least_of(keys, count)
        if by_number and (sorting.most_of(keys, count) - least) >> (64 - bits) == 0:
            sorting.pack(keys, count, least, bits)
            slots = sorting.sort(keys, count, 1, bits)  # where they were, they are in order
            sorting.unpack(slots, count, members, bits)
        else:
            slots = sorting.memory(count * _ENTRY)
            self._spread(slots, keys, members, count)
            slots = sorting.sort(slots, count, _ENTRY, 0)
            sorting.narrow(slots, count)
        for lane in range(L.LIST_WORDS):
            self.view[self.lists_at + which * L.LIST_WORDS + lane] = 0
        self._append_all(which, slots, count)

    def _gather(self, which: int, keys: Any, members: Any, order: Any) -> bool:
        """The messages of a list, and what they are sorted by; whether those with equal keys are by number already."""
        by_number = True
        to = last = 0
        for i in range(self.ordered):
            if i + _AHEAD < self.ordered:
                _fetch(self.view, self.slots_at + order[i + _AHEAD] * L.SLOT_WORDS)
            slot = order[i]
            at = self.slots_at + slot * L.SLOT_WORDS
            if slot > self.files and _list_of(self.view[at + L.S_INFO]) == which:
                number = self.view[at] >> L.NUMBER_SHIFT
                if which >= L.LIST_TIMED:
                    keys[to] = self.view[at + L.S_DELIVER_US]
                    if number < last:
                        by_number = False
                    last = number
                else:
                    keys[to] = number
                members[to] = slot
                to += 1
        return by_number

    def _spread(self, entries: Any, keys: Any, members: Any, count: int) -> None:
        for i in range(count):
            if i + _AHEAD < count:
                _fetch(self.view, self.slots_at + members[i + _AHEAD] * L.SLOT_WORDS)
            entries[i * _ENTRY] = keys[i]
            entries[i * _ENTRY + 1] = self.view[self.slots_at + members[i] * L.SLOT_WORDS] >> L.NUMBER_SHIFT
            entries[i * _ENTRY + 2] = members[i]

    def _append_all(self, which: int, slots: Any, count: int) -> None:
        for i in range(count):
            if i + _AHEAD < count:
                _fetch(self.view, self.slots_at + slots[i + _AHEAD] * L.SLOT_WORDS)
            slot = slots[i]
            at = self.slots_at + slot * L.SLOT_WORDS
            for word in range(L.S_LINKS, L.S_PLACE):
                self.view[at + word] = 0
            key = self.view[at + L.S_DELIVER_US] if which >= L.LIST_TIMED else 0
            self._append(slot, at, which, key, self.view[at] >> L.NUMBER_SHIFT)

    def _set_ends(self, at: int, slot: int) -> None:
        head = self.view[at] & L.MASK32
        self.view[at] = (head if head else slot) | (slot << 32)


def _list_of(info: int) -> int:
    which = L.LIST_READY if (info >> L.FLAGS_SHIFT) & L.FLAG_READY else L.LIST_TIMED
    return which + (info & 0xF)
