"""Owns the life of a slot: vacant, being filled, waiting, pending, vacant again; and the chains by owner.

Every public method is called by the holder of the queue's lock and is one or more whole transactions: whoever dies in
it leaves either the state before or the state after (or, for work on many messages, after some of them). Never reads
the clock, never locks, never touches a file: times and owners come as arguments, and what must happen outside the
kernel is left to the caller (``H_OWED``).
"""

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.announcing import Announcing
from penstock.store.backoff import Backoff
from penstock.store.classes import Choice, Classes
from penstock.store.measuring import Measuring
from penstock.store.order import Order
from penstock.store.remembered import Remembered
from penstock.store.retained import Retained
from penstock.store.ring import Ring
from penstock.store.sleepers import Sleepers
from penstock.store.vacating import Vacating
from penstock.store.words import Words

NO_SLOT = -1
NO_ROOM = -2
NO_NUMBER = -3

NUMBERS_SPARE = 64
NUMBERS_AHEAD = 1 << 26  # how far the limit is raised ahead: index syncs keep it there, a put seldom waits for one


class Delivery:
    """A message as its slot has it: what a receiver needs to find it and to prove later that it is still meant."""

    __slots__ = ("attempts", "deliver_us", "number", "place", "slot")

    slot: int
    number: int
    attempts: int
    deliver_us: int
    place: int


class Kernel:
    """Header and slots of one queue."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.slots_at = self.words.load(L.H_SLOTS_AT)
        self.slots = self.words.load(L.H_SLOTS)
        self.stats_at = self.words.load(L.H_STATS_AT)
        self.clients_at = self.words.load(L.H_CLIENTS_AT)
        self.clients = self.words.load(L.H_CLIENTS)
        self.data_bytes = self.words.load(L.H_DATA_UNITS) * L.UNIT_BYTES
        self.words.use_journal(self.words.load(L.H_JOURNAL_AT), self.words.load(L.H_JOURNAL_ENTRIES))
        self.measuring = Measuring(words, self.stats_at)
        self.order = Order(words, self.words.load(L.H_LISTS_AT), self.slots_at, self.slots)
        self.ring = Ring(words, self.slots_at, self.words.load(L.H_DATA_UNITS))
        self.vacating = Vacating(words, self.ring, self.slots_at)
        self.retained = Retained(words, self.slots_at)
        self.sleepers = Sleepers(words)
        self.announcing = Announcing(words)
        self.remembered = Remembered(words)
        self.backoff: Backoff | None = None  # for what its owner did not give back itself
        self.trees_at = self.words.load(L.H_TREES_AT)
        self.classes = Classes(words, self.order, self.sleepers)

    # ------------------------------------------------------------ reading

    def get(self, index: int) -> int:
        """One word of the kernel file."""
        return self.words.load(index)

    def field(self, slot: int, field: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + field)

    def number(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS) >> L.NUMBER_SHIFT

    def state(self, slot: int) -> int:
        return (self.words.load(self.slots_at + slot * L.SLOT_WORDS) >> L.STATE_SHIFT) & 0xF

    def attempts(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO) >> L.ATTEMPTS_SHIFT

    def word_of(self, slot: int, number: int, state: int) -> int:
        """The slot's identity word with its check bits, which tell a torn or foreign word from a true one."""
        mixed = ((number * L.MIX_NUMBER) ^ (slot * L.MIX_SLOT) ^ (state * L.MIX_STATE)) & L.MASK64
        return (number << L.NUMBER_SHIFT) | (state << L.STATE_SHIFT) | (mixed >> 52)

    def delivery(self, slot: int) -> Delivery:
        at = self.slots_at + slot * L.SLOT_WORDS
        found = Delivery.__new__(Delivery)
        found.slot = slot
        found.number = self.number(slot)
        found.attempts = self.attempts(slot)
        found.deliver_us = self.words.load(at + L.S_DELIVER_US)
        found.place = self.words.load(at + L.S_PLACE)
        return found

    def holds(self, slot: int, number: int, attempts: int, owner: int) -> bool:
        """Whether this delivery of this message still belongs to this owner."""
        return (
            slot < self.slots
            and self.words.load(self.slots_at + slot * L.SLOT_WORDS) == self.word_of(slot, number, L.STATE_PENDING)
            and self.attempts(slot) == attempts
            and self.field(slot, L.S_OWNER) == owner
        )

    # ------------------------------------------------------------ repair

    def recover(self) -> bool:
        """What every holder does first: undo what a dead process left half-done, finish what it had published."""
        if self.words.load(L.H_REPAIRING) != 0:
            raise Corrupt(
                self.words.path,
                offset=L.H_REPAIRING * L.WORD_BYTES,
                expected="a finished repair",
                found="one that was cut short: run `penstock repair`",
            )
        broken = self.words.begin()
        if broken:
            self._count(L.T_REPAIRS, 1)
            self.words.commit()
        if self.words.load(L.H_INCOMING) != 0 or self.words.load(L.H_PUBLISHER) != 0:
            self.merge()
        return broken

    # ------------------------------------------------------------ putting

    def take(self, units: int) -> int:
        """Pop a vacant slot, give it a number and room. Leaves the transaction open. NO_SLOT or NO_ROOM if full,
        NO_NUMBER if an index sync is needed first: no number may be given twice, whatever is lost."""
        slot = self.words.load(L.H_VACANT)
        fresh = self.words.load(L.H_FRESH)
        if slot == 0 and fresh >= self.slots:
            return NO_SLOT
        number = self.words.load(L.H_NUMBER_NEXT)
        # One more to give each up that is being filled, and some for those that are killed on the way of that.
        if number + self.words.load(L.H_FILLING) + NUMBERS_SPARE >= self.words.load(L.H_NUMBER_SAFE):
            return NO_NUMBER
        spilled = self.words.load(L.H_SPILLED_BYTES)
        if spilled and (self.words.load(L.H_USED_UNITS) + units) * L.UNIT_BYTES + spilled > self.data_bytes:
            return NO_ROOM  # bodies of their own count as well: the queue's size is its bound
        if not self.ring.fits(units):
            return NO_ROOM
        if slot != 0:
            self.words.put(L.H_VACANT, self.field(slot, L.S_CHAIN))
        else:
            slot = fresh
            self.words.put(L.H_FRESH, fresh + 1)
        self.ring.take(slot, units)
        # Raw: a number that was once given to a record on disk is never given again, whatever is rolled back.
        self.words.raw(L.H_NUMBER_NEXT, number + 1)
        self._set_word(slot, number, L.STATE_FILLING)
        return slot

    def describe(
        self, slot: int, deliver_us: int, info: int, spilled_bytes: int, entry: int = 0, enqueued_us: int = 0
    ) -> None:
        """Note what a taken slot will hold, and the ``entry`` that remembers it. Raw: nothing reads it before the
        slot's word says that it is there."""
        at = self.slots_at + slot * L.SLOT_WORDS
        self.words.raw(at + L.S_DELIVER_US, deliver_us)
        self.words.raw(at + L.S_LEASE_US, spilled_bytes)  # no lease while it is filled: the field is free
        self.words.raw(at + L.S_INFO, (info & L.INFO_LOW) | (self.number(slot) & L.TAG_MASK) << L.TAG_SHIFT)
        self.words.raw(at + L.S_ATTEMPT_US, 0)
        self.words.raw(at + L.S_ENQUEUED_US, enqueued_us)
        self.words.raw(at + L.S_LANES, entry)  # it is on no list yet

    def publish_taken(self, slot: int, now_us: int) -> None:
        """End of a put under one lock: the taken slot becomes a waiting message."""
        self._enter(slot)
        self.words.add(L.H_WAITING, 1)
        self._published(1)
        self._wake_for(slot, now_us)
        self.words.commit()

    def fill(self, slot: int, after: int, client: int, owner: int) -> None:
        """A taken slot that is filled without the lock: into its owner's chain, behind ``after`` (0: in front).
        Leaves the transaction open for more of the same."""
        at = self.slots_at + slot * L.SLOT_WORDS
        self.words.raw(at + L.S_OWNER, owner)  # raw: an owner means nothing for a slot that is vacant
        self._chain(slot, after, client)
        self.words.add(L.H_FILLING, 1)
        if not self.words.room():
            self.words.commit()

    def publish_filled(
        self, first: int, last: int, count: int, client: int, wake: int, publisher: int = 0, batch: int = 0
    ) -> None:
        """All or nothing: one transaction makes the filled chain the incoming one, then it is merged step by step.

        ``wake`` receivers are told here, where the batch becomes visible: a killed publisher's successor merges first.
        The entry ``publisher`` (its first word; 0: none) remembers ``batch``.
        """
        ahead = self.field(last, L.S_CHAIN) & L.MASK32
        behind = self.field(first, L.S_CHAIN) >> 32
        self._join(behind, ahead, client)
        self._set_chain(last, 0, self.field(last, L.S_CHAIN) >> 32)
        self.words.put(L.H_INCOMING, first)
        self.words.add(self._client(client) + L.C_COUNT, -count)
        self.words.add(L.H_FILLING, -count)
        self.words.add(L.H_WAITING, count)
        self._published(count)
        self.sleepers.wake(wake)
        if publisher:
            self.announcing.announce(publisher, batch)
        self.words.commit()
        self.merge()

    def remember(self, publisher: int, batch: int) -> None:
        """A publisher's batch without messages."""
        self.announcing.announce(publisher, batch)
        self.words.commit()
        self.merge()

    def merge(self) -> None:
        """Link the incoming chain into the lists, a journal's worth at a time. Its publisher's entry comes first, in a
        transaction of its own: whatever is lost, the entry never speaks of a batch that was not published."""
        if self.words.load(L.H_PUBLISHER) != 0:
            self.announcing.settle()
        slot = self.words.load(L.H_INCOMING)
        while slot != 0:
            while slot != 0 and self.words.room():
                ahead = self.field(slot, L.S_CHAIN) & L.MASK32
                if self.remembered.buckets != 0:
                    entry = self.field(slot, L.S_LANES)
                    if entry != 0:
                        self.remembered.settle(entry)
                self._enter(slot)
                self.words.put(L.H_INCOMING, ahead)
                slot = ahead
            self.words.commit()

    def abandon(self, slot: int, client: int, tell: bool) -> None:
        """A filled slot that is not to be published: vacant, its room free. Whoever waits for room is told, unless it
        was only taken in this same turn."""
        self._unchain(slot, client)
        self.words.add(L.H_FILLING, -1)
        if self.remembered.buckets != 0:  # else an earlier version may have left anything there
            entry = self.field(slot, L.S_LANES)
            if entry != 0:
                self.remembered.forget(entry)
        # A number of its own tells a restore that this was no acknowledgement: the batch was never published.
        number = self.words.load(L.H_NUMBER_NEXT)
        self.words.raw(L.H_NUMBER_NEXT, number + 1)
        self._set_word(slot, number, L.STATE_VACANT)
        self.vacating.free(slot)
        if tell:
            self._room()
        self._count(L.T_ABANDONED, 1)
        self.words.commit()

    def adopt(self, slot: int) -> None:
        """A slot that has its place in the ring already becomes a waiting message: the end of a repair."""
        self._enter(slot)
        self.words.add(L.H_WAITING, 1)
        self.words.commit()

    def readmit(self, slot: int, type_hash: int, key_hash: int) -> None:
        """A message that is on its list after a restore comes into the trees. In a kernel that was made before there
        were any it stays as it is."""
        if self.is_classed(slot):
            self.classes.classify(slot, type_hash, key_hash)
            self.classes.enter_listed(slot)
            self.words.commit()

    # ------------------------------------------------------------ getting

    def due(self, now_us: int) -> int:
        """The message to deliver next: of the highest priority that has one due, the earliest; 0 if none."""
        present = self.words.load(L.H_PRESENT)
        priority = L.PRIORITIES
        while priority > 0:
            priority -= 1
            ready = 0
            if (present >> priority) & 1:
                ready = self.order.head(L.LIST_READY + priority)
            if (present >> (L.LIST_TIMED + priority)) & 1:
                timed = self.order.head(L.LIST_TIMED + priority)
                at_us = self.field(timed, L.S_DELIVER_US)
                if at_us <= now_us:
                    if ready == 0:
                        return timed
                    ready_us = self.field(ready, L.S_DELIVER_US)
                    if at_us < ready_us or (at_us == ready_us and self.number(timed) < self.number(ready)):
                        return timed
            if ready != 0:
                return ready
        return 0

    def claim_many(
        self, choice: Choice | None, most: int, now_us: int, lease_us: int, client: int, owner: int
    ) -> list[Delivery]:
        """Deliver up to ``most`` due messages, if there is a choice of these types and keys alone, to an owner:
        pending, with a lease and one more attempt each."""
        claimed: list[Delivery] = []
        while len(claimed) < most:
            slot = self.due(now_us) if choice is None else self.classes.choose(choice, now_us)
            if slot == 0:
                break
            self._claim(slot, now_us, lease_us, client, owner)
            claimed.append(self.delivery(slot))
            if not self.words.room():
                self.words.commit()
        self.words.commit()
        return claimed

    def claim(self, slot: int, now_us: int, lease_us: int, client: int, owner: int) -> None:
        """Deliver this message, which waits."""
        self._claim(slot, now_us, lease_us, client, owner)
        self.words.commit()

    def claim_slot(self, slot: int, number: int, now_us: int, lease_us: int, client: int, owner: int) -> bool:
        """Deliver a message that was found by a walk, if it still waits and is due. Leaves the transaction open."""
        if (
            slot >= self.slots
            or self.field(slot, L.S_WORD) != self.word_of(slot, number, L.STATE_WAITING)
            or (self.list_of(slot) >= L.LIST_TIMED and self.field(slot, L.S_DELIVER_US) > now_us)
        ):
            return False
        self._claim(slot, now_us, lease_us, client, owner)
        if not self.words.room():
            self.words.commit()
        return True

    def ack(self, slot: int, client: int, spilled_bytes: int, now_us: int = 0) -> None:
        """Done: vacant. The record is not touched (S8). Leaves the transaction open for more of the same. How long it
        took is measured if the time is given."""
        if now_us != 0:
            self.measuring.acknowledged(self.slots_at + slot * L.SLOT_WORDS, now_us)
        self.remove(slot, client, spilled_bytes, L.T_ACKS)

    def remove(self, slot: int, client: int, spilled_bytes: int, statistic: int) -> None:
        """As ``ack``, counted as something else."""
        self._give_up(slot)
        self.order.remove(L.LIST_LEASES, slot)
        self._unchain(slot, client)
        self.words.add(L.H_PENDING, -1)
        self._vacate(slot, spilled_bytes)
        self._room()
        self._count(statistic, 1)
        if not self.words.room():
            self.words.commit()

    def extend(self, slot: int, lease_us: int) -> None:
        self.order.remove(L.LIST_LEASES, slot)
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_LEASE_US, lease_us)
        self.order.insert(L.LIST_LEASES, slot)
        if self.order.head(L.LIST_LEASES) == slot:
            self.sleepers.wake(L.MASK32)  # it ends before all others: whoever sleeps may have planned for later
        self.words.commit()

    def release(self, slot: int, client: int, deliver_us: int, now_us: int) -> None:
        """Back into the order: where it was, or (``deliver_us`` not 0) later."""
        self._give_up(slot)
        if deliver_us:
            self._put_off(slot, deliver_us)
        self._return(slot, client, now_us)
        self._count(L.T_RELEASES, 1)
        self.words.commit()

    def unclaim(self, slot: int, client: int, now_us: int) -> None:
        """Back to its place without an attempt: it was delivered, and nobody was given it to work on.

        A delivery that somebody was given keeps its number of attempts for ever: only a later one is taken back.
        """
        self._give_up(slot)
        at = self.slots_at + slot * L.SLOT_WORDS
        self.words.put(at + L.S_INFO, self.words.load(at + L.S_INFO) - L.ATTEMPT_ONE)
        if self.attempts(slot) == 0:
            self.words.put(at + L.S_ATTEMPT_US, 0)
            self.words.put(at + L.S_ENQUEUED_US, 0)  # its waiting time is counted
        self._return(slot, client, now_us)
        self._count(L.T_RELEASES, 1)
        self.words.commit()

    # ------------------------------------------------------------ returning what others hold

    def expire(self, boot_us: int, now_us: int, most: int) -> int:
        """Give back messages whose lease has ended, at most ``most``; how many."""
        done = 0
        while done < most:
            slot = self.order.head(L.LIST_LEASES)
            if slot == 0 or self.field(slot, L.S_LEASE_US) > boot_us:
                break
            client = (self.field(slot, L.S_OWNER) >> L.CLIENT_SHIFT) & L.CLIENT_MASK
            self._give_up(slot)
            self._back_off(slot, now_us)
            self._return(slot, client, now_us)
            self._count(L.T_EXPIRED, 1)
            self.words.commit()
            done += 1
        return done

    def chain_head(self, client: int) -> int:
        return self.words.load(self._client(client) + L.C_CHAIN)

    def give_back(self, slot: int, client: int, now_us: int, died: bool) -> None:
        """A pending message of a client that closes or, without having said so, ``died``."""
        self._give_up(slot)
        if died:
            self._back_off(slot, now_us)
        self._return(slot, client, now_us)
        self._count(L.T_RETURNED, 1)
        self.words.commit()

    # ------------------------------------------------------------ removing

    def cancel(self, slot: int, spilled_bytes: int) -> None:
        """Remove a waiting message. Leaves the transaction open for more of the same."""
        self._leave(slot)
        self.words.add(L.H_WAITING, -1)
        self._vacate(slot, spilled_bytes)
        if self.is_classed(slot):
            self.classes.left(slot)
        self._room()
        self._count(L.T_CANCELS, 1)
        if not self.words.room():
            self.words.commit()

    def commit(self) -> None:
        self.words.commit()

    def rollback(self) -> None:
        self.words.rollback()

    def spill(self, delta_bytes: int) -> None:
        """Bytes in ``bodies/`` that came or went, as part of the open transaction."""
        self.words.add(L.H_SPILLED_BYTES, delta_bytes)
        if delta_bytes > 0:
            self._count(L.T_SPILLS, 1)

    def grow(self, slot: int, more_bytes: int) -> None:
        """A body that is just being copied in takes so much more, of which nothing was known when it began."""
        self.words.add(L.H_SPILLED_BYTES, more_bytes)
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_LEASE_US, self.field(slot, L.S_LEASE_US) + more_bytes)
        self.words.commit()

    # ------------------------------------------------------------ syncs

    def retire(self, slot: int) -> None:
        """Give back the slot and the room of a message that was removed before the last index sync."""
        spilled_bytes = self.field(slot, L.S_LEASE_US)
        if self.spilled(slot):
            self.spill(-spilled_bytes)
        self.retained.take(slot)
        self.vacating.free(slot)
        self._room()
        self.words.commit()

    def spilled(self, slot: int) -> bool:
        """Whether the message's body is a file of its own."""
        return (self.field(slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_SPILLED != 0

    def note(self, word: int, value: int) -> None:
        """Store a word that says what goes on outside the kernel. Not journaled."""
        self.words.raw(word, value)

    def committed(self, messages: int, followed: int) -> None:
        """Count a put that waited for a sync, as part of the open transaction."""
        self._count(L.T_COMMITS, 1)
        self._count(L.T_COMMITTED, messages)
        self._count(L.T_FOLLOWED, followed)

    def synced(self) -> None:
        self._count(L.T_SYNCS, 1)
        self.words.commit()

    # ------------------------------------------------------------ waking

    def tell(self, receivers: int) -> None:
        """Wake everybody who waits for room, and up to so many receivers: something changed that no message tells."""
        self._room()
        if receivers:
            self.sleepers.wake(receivers)
        self.words.commit()

    def pass_on(self, now_us: int) -> None:
        """A sleeper was woken and wants nothing any more: what is due is somebody else's."""
        if self.due(now_us) != 0:
            self.sleepers.wake(1)
            self.words.commit()

    def _wake_for(self, slot: int, now_us: int) -> None:
        """One receiver for a message that is due; all of them, to plan anew, for one that is the next of its list."""
        if not self.sleepers.anybody():
            return
        which = self.list_of(slot)
        if which < L.LIST_TIMED or self.field(slot, L.S_DELIVER_US) <= now_us:
            self.sleepers.wake(1)
        elif self.order.head(which) == slot or self.sleepers.somebody_chooses():
            self.sleepers.wake(L.MASK32)  # also for those that sleep until the next of another class

    def _room(self) -> None:
        if self.sleepers.anybody_for_room():
            self.sleepers.wake_for_room()

    # ------------------------------------------------------------ steps of the above; the transaction stays open

    def list_of(self, slot: int) -> int:
        return self.order.list_of(slot)

    def is_classed(self, slot: int) -> bool:
        """Whether a message is one for the trees."""
        return self.trees_at != 0 and (self.field(slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_CLASSED != 0

    def _set_word(self, slot: int, number: int, state: int) -> None:
        self.words.put(self.slots_at + slot * L.SLOT_WORDS, self.word_of(slot, number, state))

    def _count(self, word: int, delta: int) -> None:
        self.words.add(self.stats_at + word, delta)

    def _published(self, count: int) -> None:
        self._count(L.T_PUTS, count)
        depth = self.words.load(L.H_WAITING)
        if depth > self.words.load(self.stats_at + L.T_DEPTH_MAX):
            self.words.put(self.stats_at + L.T_DEPTH_MAX, depth)

    def _enter(self, slot: int) -> None:
        """Into the order, as waiting."""
        self._set_word(slot, self.number(slot), L.STATE_WAITING)
        if self.is_classed(slot):
            self.classes.enter(slot)
        else:
            self.order.insert(self.list_of(slot), slot)

    def _leave(self, slot: int) -> None:
        """Out of the order, before its word says so."""
        if self.is_classed(slot):
            self.classes.leave(slot)
        else:
            self.order.remove(self.list_of(slot), slot)

    def _take_up(self, slot: int) -> None:
        """One that has left the order has an owner, as its word says."""
        if self.is_classed(slot):
            self.classes.taken(slot)

    def _give_up(self, slot: int) -> None:
        """One that has an owner is about to have none, before its word says so."""
        if self.is_classed(slot):
            self.classes.done(slot)

    def _claim(self, slot: int, now_us: int, lease_us: int, client: int, owner: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS
        self.measuring.delivered(at, now_us)
        self._leave(slot)
        # Raw: owner and lease mean nothing for a slot that waits, which this one is again if we don't commit.
        self.words.raw(at + L.S_OWNER, owner)
        self.words.raw(at + L.S_LEASE_US, lease_us)
        self.words.put(at + L.S_ATTEMPT_US, now_us)
        self.words.put(at + L.S_INFO, self.words.load(at + L.S_INFO) + L.ATTEMPT_ONE)
        self._set_word(slot, self.number(slot), L.STATE_PENDING)
        self._take_up(slot)
        self.order.insert(L.LIST_LEASES, slot)
        self._chain(slot, 0, client)
        self.words.add(L.H_WAITING, -1)
        self.words.add(L.H_PENDING, 1)
        self._count(L.T_GETS, 1)

    def _return(self, slot: int, client: int, now_us: int) -> None:
        self.order.remove(L.LIST_LEASES, slot)
        self._unchain(slot, client)
        self.words.add(L.H_PENDING, -1)
        self._enter(slot)
        self.words.add(L.H_WAITING, 1)
        self._wake_for(slot, now_us)

    def _back_off(self, slot: int, now_us: int) -> None:
        if self.backoff is not None:
            delay_us = self.backoff.delay_us(self.attempts(slot), self.number(slot))
            if delay_us:
                self._put_off(slot, now_us + delay_us)

    def _put_off(self, slot: int, deliver_us: int) -> None:
        """A message that is on no list will wait until then."""
        at = self.slots_at + slot * L.SLOT_WORDS
        self.words.put(at + L.S_DELIVER_US, deliver_us)
        self.words.put(at + L.S_INFO, self.field(slot, L.S_INFO) & ~(L.FLAG_READY << L.FLAGS_SHIFT))

    def count(self, statistic: int, delta: int) -> None:
        """Count something that the caller does, as part of the open transaction."""
        self._count(statistic, delta)

    def _vacate(self, slot: int, spilled_bytes: int) -> None:
        """A message is gone. Its room is free, now or after the next index sync."""
        if self._empty(slot, spilled_bytes):
            self.vacating.free(slot)

    def _empty(self, slot: int, spilled_bytes: int) -> bool:
        """A message is gone; whether its room can be given away now."""
        self._set_word(slot, self.number(slot), L.STATE_VACANT)
        if not self.retained.must_keep(slot):
            return True
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_LEASE_US, spilled_bytes)  # nobody leases it now
        self.retained.keep(slot)
        return False

    def _client(self, client: int) -> int:
        return self.clients_at + client * L.CLIENT_WORDS

    def _set_chain(self, slot: int, ahead: int, behind: int) -> None:
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN, ahead | (behind << 32))

    def _chain(self, slot: int, after: int, client: int) -> None:
        ahead = self.field(after, L.S_CHAIN) & L.MASK32 if after else self.words.load(self._client(client) + L.C_CHAIN)
        self._set_chain(slot, ahead, after)
        if ahead:
            self._set_chain(ahead, self.field(ahead, L.S_CHAIN) & L.MASK32, slot)
        if after:
            self._set_chain(after, slot, self.field(after, L.S_CHAIN) >> 32)
        else:
            self.words.put(self._client(client) + L.C_CHAIN, slot)
        self.words.add(self._client(client) + L.C_COUNT, 1)

    def _unchain(self, slot: int, client: int) -> None:
        links = self.field(slot, L.S_CHAIN)
        self._join(links >> 32, links & L.MASK32, client)
        self.words.add(self._client(client) + L.C_COUNT, -1)

    def _join(self, behind: int, ahead: int, client: int) -> None:
        if behind:
            self._set_chain(behind, ahead, self.field(behind, L.S_CHAIN) >> 32)
        else:
            self.words.put(self._client(client) + L.C_CHAIN, ahead)
        if ahead:
            self._set_chain(ahead, self.field(ahead, L.S_CHAIN) & L.MASK32, behind)
