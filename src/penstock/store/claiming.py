"""Owns claims in the kernel: messages that belong to a receiver by its name, in numbered sets, and to no process.

A claimed slot is on no list and has no lease: it is on its receiver's chain, by claim and then in the order in which
its messages were due. Called by the holder of the queue's lock; each method is one or more whole transactions unless it
says otherwise. Never reads the clock, never locks, never touches a file: the caller makes a claim durable.
"""

from typing import Any

from penstock.errors import Corrupt
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.kernel import Kernel

NO_ENTRY = -1

# Again for the compiled loops, where they are C's and not a module's; words of a row.
_ROW = G.REFERENCE_WORDS
_SLOT = G.F_SLOT
_NUMBER = G.F_NUMBER
_PLACE = G.F_PLACE
_DELIVER_US = G.F_DELIVER_US
_INFO = G.F_INFO


class Claiming:
    """The receivers of one kernel and what they have claimed."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.words = kernel.words
        self.order = kernel.order
        self.measuring = kernel.measuring
        self.vacating = kernel.vacating
        self.slots_at = kernel.slots_at
        self.slots = kernel.slots
        self.names_at = kernel.get(L.H_NAMES_AT)
        self.used_units = 0  # by what was taken last
        self.looked = 0  # references that were looked at by ``take_chosen``
        self.more = False  # whether ``walk`` or ``count_due`` stopped before the end
        self.late = False  # whether ``take`` stopped before a message that was put too late
        self.last_us = 0  # delivery time and number of the message that ``count_due`` counted last
        self.last_number = 0

    # ------------------------------------------------------------ receivers

    def word(self, entry: int, word: int) -> int:
        return self.words.load(self._at(entry) + word)

    def name(self, entry: int) -> str:
        """The receiver's name; empty if the entry was never taken."""
        length = self.word(entry, L.N_LENGTH)
        if length > L.RECEIVER_NAME_BYTES:
            at = self._at(entry) + L.N_LENGTH
            raise Corrupt(self.words.path, offset=at * L.WORD_BYTES, expected="the length of a name", found=str(length))
        words = [self.word(entry, L.N_NAME + i) for i in range(L.RECEIVER_NAME_BYTES // L.WORD_BYTES)]
        return b"".join(word.to_bytes(L.WORD_BYTES, "little") for word in words)[:length].decode("ascii", "replace")

    def find(self, name: str) -> int:
        """The entry of a receiver; NO_ENTRY if there is none."""
        for entry in range(L.RECEIVERS):
            if self.word(entry, L.N_LENGTH) and self.name(entry) == name:
                return entry
        return NO_ENTRY

    def make(self, name: str) -> int:
        """The entry of a receiver, a new one if it has none; NO_ENTRY if all are taken. Leaves the transaction open."""
        entry = self.find(name)
        if entry != NO_ENTRY:
            return entry
        for entry in range(L.RECEIVERS):
            if self.word(entry, L.N_LENGTH) == 0:
                at = self._at(entry)
                data = name.encode("ascii").ljust(L.RECEIVER_NAME_BYTES, b"\0")
                for i in range(L.RECEIVER_NAME_BYTES // L.WORD_BYTES):
                    part = data[i * L.WORD_BYTES : (i + 1) * L.WORD_BYTES]
                    self.words.put(at + L.N_NAME + i, int.from_bytes(part, "little"))
                self.words.put(at + L.N_LENGTH, len(name))
                return entry
        return NO_ENTRY

    def enter(self, entry: int, claim: int, now_us: int) -> int:
        """Take a receiver's entry: the new epoch, which fences whoever had it. ``claim`` is the highest number that is
        known of; the next one is above it."""
        at = self._at(entry)
        epoch = self.words.load(at + L.N_EPOCH) + 1
        self.words.put(at + L.N_EPOCH, epoch)
        if claim > self.words.load(at + L.N_CLAIM):
            self.words.put(at + L.N_CLAIM, claim)
        self.words.put(at + L.N_SEEN_US, now_us)
        self.words.commit()
        return epoch

    def set_timeout(self, entry: int, timeout_us: int) -> None:
        """How long after it was last seen its claims may be released by anybody; 0: never."""
        self.words.put(self._at(entry) + L.N_TIMEOUT_US, timeout_us)
        self.words.commit()

    def overdue(self, entry: int, now_us: int) -> bool:
        """Whether a receiver has claims that anybody may release, unless it is there after all."""
        at = self._at(entry)
        timeout_us = self.words.load(at + L.N_TIMEOUT_US)
        return (
            timeout_us != 0
            and self.words.load(at + L.N_COUNT) != 0
            and self.words.load(at + L.N_SEEN_US) + timeout_us < now_us
        )

    def forget(self, entry: int) -> None:
        """An entry without claims is free. Its epoch goes on, which fences whoever had it."""
        at = self._at(entry)
        self.words.put(at + L.N_EPOCH, self.words.load(at + L.N_EPOCH) + 1)
        for word in (L.N_LENGTH, L.N_CLAIM, L.N_SEEN_US, L.N_TIMEOUT_US):
            self.words.put(at + word, 0)
        self.words.commit()

    def seen(self, entry: int, now_us: int) -> None:
        """Leaves the transaction open."""
        self.words.put(self._at(entry) + L.N_SEEN_US, now_us)

    # ------------------------------------------------------------ looking

    def first(self, entry: int) -> int:
        return self.words.load(self._at(entry) + L.N_CHAIN) & L.MASK32

    def last(self, entry: int) -> int:
        return self.words.load(self._at(entry) + L.N_CHAIN) >> 32

    def claim_of(self, slot: int) -> int:
        """Number of the claim of a claimed slot."""
        return self.kernel.field(slot, L.S_LEASE_US)

    def before(self, slot: int) -> int:
        return self.kernel.field(slot, L.S_CHAIN) >> 32

    def after(self, slot: int) -> int:
        return self.kernel.field(slot, L.S_CHAIN) & L.MASK32

    def holds(self, entry: int, slot: int, number: int) -> bool:
        """Whether a receiver still has this message."""
        return (
            slot < self.slots
            and self.kernel.field(slot, L.S_WORD) == self.kernel.word_of(slot, number, L.STATE_CLAIMED)
            and self.kernel.field(slot, L.S_OWNER) == self.owner(entry)
        )

    def owner(self, entry: int) -> int:
        return L.OWNER_CLAIM | entry << L.CLIENT_SHIFT

    def row(self, rows: Any, index: int, slot: int) -> None:
        """Reference number ``index`` of ``rows``, which has room for it: what whoever reads the message needs."""
        at = self.slots_at + slot * L.SLOT_WORDS
        to = index * _ROW
        rows[to + _SLOT] = slot
        rows[to + _NUMBER] = self.kernel.number(slot)
        rows[to + _PLACE] = self.words.load(at + L.S_PLACE)
        rows[to + _DELIVER_US] = self.words.load(at + L.S_DELIVER_US)
        rows[to + _INFO] = self.words.load(at + L.S_INFO)

    # ------------------------------------------------------------ claiming

    def take(
        self,
        rows: Any,
        most: int,
        room_units: int,
        empty: bool,
        now_us: int,
        entry: int,
        claim: int,
        due_us: int,
        below: int,
    ) -> int:
        """Claim up to ``most`` messages that were due at ``due_us`` and whose records have at most ``room_units``
        together; how many. Their references go to ``rows``. The first of an ``empty`` claim may have more. Stops behind
        one whose body is a file: only its record says how long that is; and before one with a number from ``below`` on,
        which ``late`` then says."""
        self.used_units = 0
        self.more = True
        self.late = False
        count = 0
        while self.more and count < most:
            slot = self.kernel.due(due_us)
            if slot == 0:
                break
            first = empty and count == 0
            if self.kernel.is_classed(slot):
                count += self._take_one(slot, rows, count, room_units, first, now_us, entry, claim, below)
                continue
            count += self._take_run(slot, rows, count, most, room_units, first, now_us, entry, claim, due_us, below)
        return count

    def _take_one(
        self,
        slot: int,
        rows: Any,
        index: int,
        room_units: int,
        empty: bool,
        now_us: int,
        entry: int,
        claim: int,
        below: int,
    ) -> int:
        """Claim a message that is in the trees: it leaves them too, and others of its key may have to wait for it."""
        units = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_PLACE) & L.PLACE_MASK
        if self.kernel.number(slot) >= below:
            self.late = True
            self.more = False
            return 0
        if self.used_units + units > room_units and not empty:
            self.more = False
            return 0
        self._claim(slot, now_us, entry, claim)
        self.row(rows, index, slot)
        self._claimed(entry, claim, 1)
        self.used_units += units
        if self.kernel.spilled(slot):
            self.more = False
        return 1

    def _take_run(
        self,
        slot: int,
        rows: Any,
        index: int,
        end: int,
        room_units: int,
        empty: bool,
        now_us: int,
        entry: int,
        claim: int,
        due_us: int,
        below: int,
    ) -> int:
        """Claim the first of a list, and those behind it as long as they come next; how many. They leave the list
        together, so that each costs its own words and no other's. Afterwards ``more`` is whether it may go on."""
        which = self.kernel.list_of(slot)
        rival = self._rival(which, due_us)
        comes_next = which < L.LIST_TIMED and rival == 0
        owner = self.owner(entry)
        first = index
        begun = index  # where this transaction began
        last = self.last(entry)
        behind = 0  # the link back of the last one that was marked
        self.measuring.begin()
        while slot != 0 and index < end:
            if index > first and (
                self.kernel.is_classed(slot) or not (comes_next or self._is_next(slot, which, rival, due_us))
            ):
                break
            at = self.slots_at + slot * L.SLOT_WORDS
            number = self.words.load(at + L.S_WORD) >> L.NUMBER_SHIFT
            if number >= below:
                self.late = True
                self.more = False
                break
            place = self.words.load(at + L.S_PLACE)
            units = place & L.PLACE_MASK
            if self.used_units + units > room_units and not (empty and index == first):
                self.more = False
                break
            if index > begun:
                self.words.raw(self.slots_at + last * L.SLOT_WORDS + L.S_CHAIN, slot | behind)
                behind = last << 32
            else:
                behind = 0
            info = self.words.load(at + L.S_INFO)
            deliver_us = self.words.load(at + L.S_DELIVER_US)
            if info >> L.ATTEMPTS_SHIFT != 0:
                self.measuring.delivered(at, now_us)
            else:
                self.measuring.first_delivered_later(deliver_us, self.words.load(at + L.S_ENQUEUED_US), now_us)
            info += L.ATTEMPT_ONE
            self.words.put(at + L.S_ATTEMPT_US, now_us)
            self.words.put(at + L.S_INFO, info)
            # Raw, as its chain: they mean nothing for a slot that waits, which this one is again if we don't commit.
            self.words.raw(at + L.S_OWNER, owner)
            self.words.raw(at + L.S_LEASE_US, claim)
            self.words.put(at + L.S_WORD, self.kernel.word_of(slot, number, L.STATE_CLAIMED))
            to = index * _ROW
            rows[to + _SLOT] = slot
            rows[to + _NUMBER] = number
            rows[to + _PLACE] = place
            rows[to + _DELIVER_US] = deliver_us
            rows[to + _INFO] = info
            self.used_units += units
            last = slot
            slot = self.words.load(at + L.S_LINKS) & L.MASK32
            index += 1
            if (info >> L.FLAGS_SHIFT) & L.FLAG_SPILLED:
                self.more = False
                break
            if not self.words.room():
                self.measuring.measure_delivered(now_us)
                self._took(which, slot, rows[begun * _ROW + _SLOT], last, behind, entry, claim, index - begun)
                begun = index
        if index > begun:
            self.measuring.measure_delivered(now_us)
            self._took(which, slot, rows[begun * _ROW + _SLOT], last, behind, entry, claim, index - begun)
        return index - first

    def _rival(self, which: int, now_us: int) -> int:
        """The first of the other list of this priority, if it is due."""
        other = which - L.LIST_TIMED if which >= L.LIST_TIMED else which + L.LIST_TIMED
        slot = self.order.head(other) if self.order.count(other) else 0
        if slot != 0 and other >= L.LIST_TIMED and self.kernel.field(slot, L.S_DELIVER_US) > now_us:
            return 0
        return slot

    def _is_next(self, slot: int, which: int, rival: int, now_us: int) -> bool:
        """Whether ``Kernel.due`` would name this one, the first of its list by now."""
        if which < L.LIST_TIMED:
            return rival == 0 or not self._is_earlier(rival, slot)
        return self.kernel.field(slot, L.S_DELIVER_US) <= now_us and (rival == 0 or self._is_earlier(slot, rival))

    def _took(
        self, which: int, head: int, first: int, last: int, link: int, entry: int, claim: int, count: int
    ) -> None:
        """So many, from ``first`` to ``last``, whose ``link`` is back to the one before it, were marked, and ``head``
        is behind them: they change from the list to the chain, and are committed with that."""
        self.words.raw(self.slots_at + last * L.SLOT_WORDS + L.S_CHAIN, link)
        chain = self._at(entry) + L.N_CHAIN
        ends = self.words.load(chain)
        behind = ends >> 32
        self.order.cut(which, head, count)
        if behind:
            self.kernel._set_chain(behind, first, self.before(behind))
            self.words.raw(self.slots_at + first * L.SLOT_WORDS + L.S_CHAIN, self.after(first) | (behind << 32))
        self.words.put(chain, (ends & L.MASK32 if behind else first) | (last << 32))
        self._claimed(entry, claim, count)

    def walk(self, rows: Any, places: Any, most: int, steps: int, now_us: int, below: int, passed: Any) -> int:
        """References of due messages go to ``rows``, in the order of delivery, up to ``most``; how many. Begins behind
        ``places``, which has key and number of the last message of each list, and moves them on over at most ``steps``
        messages. Leaves out numbers from ``below`` on, and messages that are in ``passed``: a number for each slot."""
        count = 0
        self.more = True
        priority = L.PRIORITIES
        while priority > 0:
            priority -= 1
            ready = self._behind(L.LIST_READY + priority, places)
            timed = self._behind(L.LIST_TIMED + priority, places)
            while True:
                if timed != 0 and self.kernel.field(timed, L.S_DELIVER_US) > now_us:
                    timed = 0
                if ready == 0 and timed == 0:
                    break
                if count == most or steps == 0:
                    return count
                steps -= 1
                if ready == 0 or (timed != 0 and self._is_earlier(timed, ready)):
                    slot = timed
                    timed = self._step(L.LIST_TIMED + priority, places, slot, self.kernel.field(slot, L.S_DELIVER_US))
                else:
                    slot = ready
                    ready = self._step(L.LIST_READY + priority, places, slot, 0)
                number = self.kernel.number(slot)
                if number < below and (slot >= len(passed) or passed[slot] != number):
                    self.row(rows, count, slot)
                    count += 1
        self.more = False
        return count

    def _behind(self, which: int, places: Any) -> int:
        if self.order.count(which) == 0:
            return 0
        return self.order.after(which, places[2 * which], places[2 * which + 1])

    def _step(self, which: int, places: Any, slot: int, key: int) -> int:
        places[2 * which] = key
        places[2 * which + 1] = self.kernel.number(slot)
        return self.order.follower(which, 0, slot)

    def _is_earlier(self, timed: int, ready: int) -> bool:
        """As in ``Kernel.due``."""
        timed_us = self.kernel.field(timed, L.S_DELIVER_US)
        ready_us = self.kernel.field(ready, L.S_DELIVER_US)
        return timed_us < ready_us or (timed_us == ready_us and self.kernel.number(timed) < self.kernel.number(ready))

    def take_chosen(
        self,
        chosen: Any,
        first: int,
        end: int,
        rows: Any,
        room_units: int,
        empty: bool,
        now_us: int,
        entry: int,
        claim: int,
    ) -> int:
        """Claim those of the ``chosen`` references from ``first`` to ``end`` whose messages still wait as they say; how
        many. For the rest see ``take``. ``looked`` is where it stopped."""
        count = 0
        uncounted = 0
        used = 0
        index = first
        while index < end:
            slot = chosen[index * _ROW + _SLOT]
            if self._waits(slot, chosen[index * _ROW + _NUMBER], chosen[index * _ROW + _DELIVER_US]):
                units = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_PLACE) & L.PLACE_MASK
                if used + units > room_units and not (empty and count == 0):
                    break
                self._claim(slot, now_us, entry, claim)
                self.row(rows, count, slot)
                count += 1
                uncounted += 1
                used += units
                if self.kernel.spilled(slot):
                    index += 1
                    break
                if not self.words.room():
                    self._claimed(entry, claim, uncounted)
                    uncounted = 0
            index += 1
        self._claimed(entry, claim, uncounted)
        self.used_units = used
        self.looked = index
        return count

    def _waits(self, slot: int, number: int, deliver_us: int) -> bool:
        return (
            slot < self.slots
            and self.kernel.field(slot, L.S_WORD) == self.kernel.word_of(slot, number, L.STATE_WAITING)
            and self.kernel.field(slot, L.S_DELIVER_US) == deliver_us
            and not (self.kernel.field(slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_HELD
        )

    def count_due(self, which: int, after_us: int, number: int, now_us: int, most: int) -> int:
        """How many messages of a timed list are due behind this time and number, counted up to ``most``."""
        count = 0
        self.more = False
        slot = 0
        if self.order.count(which):
            slot = self.order.after(which, after_us, number)
        while slot != 0 and self.kernel.field(slot, L.S_DELIVER_US) <= now_us:
            if count == most:
                self.more = True
                break
            count += 1
            self.last_us = self.kernel.field(slot, L.S_DELIVER_US)
            self.last_number = self.kernel.number(slot)
            slot = self.order.follower(which, 0, slot)
        return count

    def oldest_due_us(self, now_us: int) -> int:
        """Delivery time of the message that has been due longest; 0 if none is."""
        oldest = 0
        for which in range(L.LIST_LEASES):
            if self.order.count(which):
                due_us = self.kernel.field(self.order.head(which), L.S_DELIVER_US)
                if (which < L.LIST_TIMED or due_us <= now_us) and (oldest == 0 or due_us < oldest):
                    oldest = due_us
        return oldest

    def _claim(self, slot: int, now_us: int, entry: int, claim: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS
        self.measuring.delivered(at, now_us)
        self.words.put(at + L.S_ATTEMPT_US, now_us)
        self.words.put(at + L.S_INFO, self.words.load(at + L.S_INFO) + L.ATTEMPT_ONE)
        self._attach(slot, entry, claim)

    def _claimed(self, entry: int, claim: int, count: int) -> None:
        """So many were attached: they are counted, once for all, and committed with that."""
        if count != 0:
            self.kernel._count(L.T_GETS, count)
            self._attached(entry, claim, count)
        self.words.commit()

    def adopt(self, slot: int, entry: int, claim: int, info: int) -> None:
        """A message that waits after a restore is claimed again, with the attempts of its reference."""
        at = self.slots_at + slot * L.SLOT_WORDS
        low = self.words.load(at + L.S_INFO) & L.INFO_LOW
        self.words.put(at + L.S_INFO, (info >> L.ATTEMPTS_SHIFT) << L.ATTEMPTS_SHIFT | low)
        self._attach(slot, entry, claim)
        self._attached(entry, claim, 1)
        self.words.commit()

    def _attached(self, entry: int, claim: int, count: int) -> None:
        at = self._at(entry)
        self.words.add(at + L.N_COUNT, count)
        self.words.put(at + L.N_CLAIM, claim)
        self.words.add(L.H_WAITING, -count)
        self.words.add(L.H_CLAIMED, count)

    def _attach(self, slot: int, entry: int, claim: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS
        chain = self._at(entry) + L.N_CHAIN
        self.kernel._leave(slot)
        # Raw: owner and claim mean nothing for a slot that waits, which this one is again if we don't commit.
        self.words.raw(at + L.S_OWNER, self.owner(entry))
        self.words.raw(at + L.S_LEASE_US, claim)
        self.kernel._set_word(slot, self.kernel.number(slot), L.STATE_CLAIMED)
        self.kernel._take_up(slot)
        ends = self.words.load(chain)
        last = ends >> 32
        self.kernel._set_chain(slot, 0, last)
        if last:
            self.kernel._set_chain(last, slot, self.before(last))
        self.words.put(chain, (ends & L.MASK32 if last else slot) | (slot << 32))

    # ------------------------------------------------------------ what becomes of them

    def ack(self, entry: int, claim: int, most: int, now_us: int) -> int:
        """Messages of claims up to ``claim`` are done, at most ``most``; how many. Stops before one whose body is a
        file: see ``ack_spilled``."""
        count = 0
        begun = 0  # where this transaction began
        self.vacating.begin()
        self.measuring.begin()
        slot = self.first(entry)
        while count < most and slot != 0 and self.claim_of(slot) <= claim and not self.kernel.spilled(slot):
            following = self.after(slot)
            self.measuring.done_later(self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_ATTEMPT_US), now_us)
            self.kernel._give_up(slot)
            if self.kernel._empty(slot, 0):
                self.vacating.free_later(slot)
            slot = following
            count += 1
            if not self.words.room():
                self.vacating.end()
                self.measuring.measure_done(now_us)
                self._acked(entry, slot, count - begun)
                begun = count
        self.vacating.end()
        self.measuring.measure_done(now_us)
        self._acked(entry, slot, count - begun)
        return count

    def _acked(self, entry: int, first: int, count: int) -> None:
        """So many are gone from the front of the chain, and ``first`` is behind them. Committed with that."""
        if count != 0:
            chain = self._at(entry) + L.N_CHAIN
            self.words.put(chain, (self.words.load(chain) >> 32 << 32) | first if first else 0)
            if first:
                self.kernel._set_chain(first, self.after(first), 0)
            self.words.add(self._at(entry) + L.N_COUNT, -count)
            self.words.add(L.H_CLAIMED, -count)
            self.kernel._room()
            self.kernel._count(L.T_ACKS, count)
        self.words.commit()

    def ack_spilled(self, entry: int, spilled_bytes: int, now_us: int) -> None:
        """The first message of a receiver is done; its body is a file of so many bytes."""
        self.measuring.acknowledged(self.slots_at + self.first(entry) * L.SLOT_WORDS, now_us)
        self._remove(self.first(entry), entry, spilled_bytes, L.T_ACKS)
        self.words.commit()

    def remove(self, entry: int, slot: int, spilled_bytes: int, statistic: int) -> None:
        """One message of a claim is gone from here, counted as ``statistic`` says."""
        self._remove(slot, entry, spilled_bytes, statistic)
        self.words.commit()

    def _remove(self, slot: int, entry: int, spilled_bytes: int, statistic: int) -> None:
        self.kernel._give_up(slot)
        self._detach(slot, entry)
        self.kernel._vacate(slot, spilled_bytes)
        self.kernel._room()
        self.kernel._count(statistic, 1)

    def put_off(self, entry: int, slot: int, deliver_us: int, now_us: int) -> None:
        """One message of a claim waits again, with its attempts: in its old place, or (``deliver_us`` not 0) later."""
        self.kernel._give_up(slot)
        if deliver_us != 0:
            self.kernel._put_off(slot, deliver_us)
        self._return(slot, entry, now_us)
        self.words.commit()

    def give_back(self, entry: int, claim: int, start: int, most: int, now_us: int) -> int:
        """Return messages of one claim to the order, from the slot ``start`` backwards, looking at most at ``most``;
        the slot from which to go on, 0 if that was all."""
        slot = start
        while most > 0 and slot != 0 and self.claim_of(slot) >= claim:
            before = self.before(slot)
            if self.claim_of(slot) == claim:
                self._give_back(slot, entry, now_us)
                if not self.words.room():
                    self.words.commit()
            slot = before
            most -= 1
        self.words.commit()
        return slot if slot != 0 and self.claim_of(slot) >= claim else 0

    def _give_back(self, slot: int, entry: int, now_us: int) -> None:
        self.kernel._give_up(slot)
        self._return(slot, entry, now_us)

    def _return(self, slot: int, entry: int, now_us: int) -> None:
        self._detach(slot, entry)
        self.kernel._enter(slot)
        self.words.add(L.H_WAITING, 1)
        self.kernel._wake_for(slot, now_us)
        self.kernel._count(L.T_RELEASES, 1)

    def _detach(self, slot: int, entry: int) -> None:
        chain = self._at(entry) + L.N_CHAIN
        ahead = self.after(slot)
        behind = self.before(slot)
        ends = self.words.load(chain)
        if ahead:
            self.kernel._set_chain(ahead, self.after(ahead), behind)
        if behind:
            self.kernel._set_chain(behind, ahead, self.before(behind))
        first = ends & L.MASK32 if behind else ahead
        last = ends >> 32 if ahead else behind
        self.words.put(chain, first | (last << 32))
        self.words.add(self._at(entry) + L.N_COUNT, -1)
        self.words.add(L.H_CLAIMED, -1)

    def _at(self, entry: int) -> int:
        return self.names_at + entry * L.RECEIVER_WORDS
