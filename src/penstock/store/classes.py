"""Owns which messages are in the trees by type and key, and what is found there: the next of a class, the groups.

A message with a type or a key (``FLAG_CLASSED``) is in the trees as long as it is on the lists. Where keys are
exclusive, whoever has a message of a key keeps the others from the lists: of a key that nobody has, only the first
ready and the first timed message are there, all others are held. Called by the holder of the queue's lock; all changes
go through the caller's transaction. Never reads the clock, never knows a type or key but by its hash.
"""

from penstock.store import layout as L
from penstock.store.order import Order
from penstock.store.sleepers import Sleepers
from penstock.store.trees import Trees
from penstock.store.words import Words


class Choice:
    """Hashes of the types and keys that a receiver wants: one of these types, if there are any, and of these keys."""

    def __init__(self, types: list[int], keys: list[int]) -> None:
        self.types = types
        self.keys = keys


class Group:
    """The waiting messages of one key, counted."""

    __slots__ = ("busy", "due", "key", "oldest_us", "slot", "waiting")

    key: int  # its hash
    slot: int  # one of its messages: the first that was looked at
    waiting: int
    due: int  # of these, those whose time has come; none if it is busy
    oldest_us: int  # delivery time of the one that comes first by it
    busy: bool  # keys are exclusive and somebody has one of its messages


class Classes:
    """The types and keys of one kernel."""

    def __init__(self, words: Words, order: Order, sleepers: Sleepers) -> None:
        self.words = words
        self.order = order
        self.sleepers = sleepers
        self.trees = Trees(words)
        self.slots_at = self.words.load(L.H_SLOTS_AT)
        self.trees_at = self.words.load(L.H_TREES_AT)
        self.exclusive = self.trees.exclusive
        self.next_us = 0  # of what the last choice was among, the earliest that is not due yet; 0: none
        self.ready = 0  # of what it is among, the best so far of the highest priority
        self.timed = 0
        self.priority = 0

    # ------------------------------------------------------------ coming and going

    def classify(self, slot: int, type_hash: int, key_hash: int) -> None:
        """Note what a taken slot will hold. Raw: nothing reads it before the slot's word says that it is there."""
        at = self.trees_at + slot * L.TREE_WORDS
        self.words.raw(at + L.X_TYPE, type_hash)
        self.words.raw(at + L.X_KEY, key_hash)

    def enter(self, slot: int) -> None:
        """A message waits from now on, as its word says."""
        key = self.trees.key_of(slot)
        if key != 0 and self.exclusive:
            self._set_held(slot, True)
            self.trees.insert(L.B_KEYS, slot)
            self._admit(slot, key)
            return
        if key != 0:
            self.trees.insert(L.B_KEYS, slot)
        self._list(slot)

    def enter_listed(self, slot: int) -> None:
        """The same for one that is on its list already, whatever its key says."""
        if self.trees.key_of(slot) != 0 and self.exclusive:
            self.order.remove(self.order.list_of(slot), slot)
            self.enter(slot)
            return
        if self.trees.key_of(slot) != 0:
            self.trees.insert(L.B_KEYS, slot)
        if self.trees.type_of(slot) != 0:
            self.trees.insert(L.B_TYPES, slot)

    def join(self, slot: int) -> None:
        """One whose lists, flags and hashes are as they must be comes into the trees that it belongs in."""
        state = (self.words.load(self.slots_at + slot * L.SLOT_WORDS) >> L.STATE_SHIFT) & 0xF
        waits = state == L.STATE_WAITING
        owned = state == L.STATE_PENDING or state == L.STATE_CLAIMED
        if self.trees.key_of(slot) != 0 and (waits or (owned and self.exclusive)):
            self.trees.insert(L.B_KEYS, slot)
        if self.trees.type_of(slot) != 0 and waits and not self._is_held(slot):
            self.trees.insert(L.B_TYPES, slot)

    def leave(self, slot: int) -> None:
        """A waiting message is about to be delivered or removed; its word still says that it waits."""
        key = self.trees.key_of(slot)
        if key != 0:
            self.trees.remove(L.B_KEYS, slot)
        if self._is_held(slot):
            self._set_held(slot, False)
        else:
            self._unlist(slot)

    def left(self, slot: int) -> None:
        """One that waited is removed: if keys are exclusive, another one of its key may be the first now."""
        if self.exclusive and self.trees.key_of(slot) != 0:
            self._settle(self.trees.key_of(slot))

    def taken(self, slot: int) -> None:
        """One that has left was delivered, as its word says. If keys are exclusive, the others of its key are held."""
        if not self.exclusive or self.trees.key_of(slot) == 0:
            return
        key = self.trees.key_of(slot)
        if not self._is_busy(key):
            self._hold(self._first(key, L.RANK_READY))
            self._hold(self._first(key, L.RANK_TIMED))
        self.trees.insert(L.B_KEYS, slot)

    def done(self, slot: int) -> None:
        """One that was delivered is about to be removed or to wait again; its word still says that somebody has it."""
        if self.exclusive and self.trees.key_of(slot) != 0:
            self.trees.remove(L.B_KEYS, slot)
            self._settle(self.trees.key_of(slot))

    def _list(self, slot: int) -> None:
        if self.trees.type_of(slot) != 0:
            self.trees.insert(L.B_TYPES, slot)
        self.order.insert(self.order.list_of(slot), slot)

    def _unlist(self, slot: int) -> None:
        if self.trees.type_of(slot) != 0:
            self.trees.remove(L.B_TYPES, slot)
        self.order.remove(self.order.list_of(slot), slot)

    # ------------------------------------------------------------ exclusive keys

    def _first(self, key: int, rank: int) -> int:
        """The first ready or timed message of a key; 0 if none waits."""
        self.trees.aim(key, 0, rank, 0, 0)
        slot = self.trees.lower(L.B_KEYS)
        if slot == 0 or self.trees.key_of(slot) != key or self.trees.rank_of(L.B_KEYS, slot) != rank:
            return 0
        return slot

    def _is_busy(self, key: int) -> bool:
        return self._first(key, L.RANK_BUSY) != 0

    def _admit(self, slot: int, key: int) -> None:
        """One more waits, held so far. If it comes first now, another one is held instead."""
        if self._is_busy(key):
            return
        rank = self.trees.rank_of(L.B_KEYS, slot)
        if self._first(key, rank) != slot:
            return
        self.trees.aim(key, 0, rank, self.trees.time_of(slot, rank), self.trees.number_of(slot) + 1)
        second = self.trees.lower(L.B_KEYS)
        if second != 0 and self.trees.key_of(second) == key and self.trees.rank_of(L.B_KEYS, second) == rank:
            self._hold(second)
        self._set_held(slot, False)
        self._list(slot)

    def _settle(self, key: int) -> None:
        """If nobody has a message of this key, those that come first are on the lists, and somebody may want them."""
        if not self._is_busy(key):
            self._release(self._first(key, L.RANK_READY), 1)
            self._release(self._first(key, L.RANK_TIMED), L.MASK32)

    def _release(self, slot: int, receivers: int) -> None:
        if slot != 0 and self._is_held(slot):
            self._set_held(slot, False)
            self._list(slot)
            self.sleepers.wake(receivers)

    def _hold(self, slot: int) -> None:
        if slot != 0 and not self._is_held(slot):
            self._unlist(slot)
            self._set_held(slot, True)

    def _is_held(self, slot: int) -> bool:
        info = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO)
        return (info >> L.FLAGS_SHIFT) & L.FLAG_HELD != 0

    def _set_held(self, slot: int, held: bool) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS + L.S_INFO
        info = self.words.load(at)
        flag = L.FLAG_HELD << L.FLAGS_SHIFT
        self.words.put(at, info | flag if held else info & ~flag)

    # ------------------------------------------------------------ choosing

    def choose(self, choice: Choice, now_us: int) -> int:
        """Of what a receiver wants, the message that ``Kernel.due`` would name if there were no other; 0 if none is
        due."""
        self.ready = 0
        self.timed = 0
        self.priority = 0
        self.next_us = 0
        if choice.keys:
            for key in choice.keys:
                if choice.types:
                    for type_hash in choice.types:
                        self._look_at_key(key, type_hash, now_us)
                else:
                    self._look_at_key(key, 0, now_us)
        else:
            for type_hash in choice.types:
                self._look_at(L.B_TYPES, type_hash, 0, now_us)
        return self._best()

    def _look_at_key(self, key: int, type_hash: int, now_us: int) -> None:
        """``type_hash`` is 0 for any."""
        if self.exclusive:
            self._look_at_firsts(key, type_hash, now_us)
            return
        if type_hash != 0:
            self._look_at(L.B_KEYS, key, type_hash, now_us)
            return
        minor = 0
        while True:
            self.trees.aim(key, minor, 0, 0, 0)
            slot = self.trees.lower(L.B_KEYS)
            if slot == 0 or self.trees.key_of(slot) != key:
                return
            minor = self.trees.type_of(slot)
            self._look_at(L.B_KEYS, key, minor, now_us)
            if minor == L.MASK64:
                return
            minor += 1

    def _look_at_firsts(self, key: int, type_hash: int, now_us: int) -> None:
        if self._is_busy(key):
            return
        ready = self._first(key, L.RANK_READY)
        if ready != 0 and (type_hash == 0 or self.trees.type_of(ready) == type_hash):
            self._offer(ready, True)
        timed = self._first(key, L.RANK_TIMED)
        if timed != 0 and (type_hash == 0 or self.trees.type_of(timed) == type_hash):
            self._offer_timed(timed, now_us)

    def _look_at(self, which: int, major: int, minor: int, now_us: int) -> None:
        """The heads of one class, from the highest priority down to one that has something due."""
        rank = 0
        while rank < 2 * L.PRIORITIES:
            self.trees.aim(major, minor, rank, 0, 0)
            slot = self.trees.lower(which)
            if slot == 0 or self.trees.major_of(which, slot) != major or self.trees.minor_of(which, slot) != minor:
                return
            rank = self.trees.rank_of(which, slot)
            if rank & 1:
                if self._offer_timed(slot, now_us):
                    return
                rank += 1
                continue
            self._offer(slot, True)
            self.trees.aim(major, minor, rank + 1, 0, 0)
            slot = self.trees.lower(which)
            if (
                slot != 0
                and self.trees.major_of(which, slot) == major
                and self.trees.minor_of(which, slot) == minor
                and self.trees.rank_of(which, slot) == rank + 1
            ):
                self._offer_timed(slot, now_us)
            return

    def _offer_timed(self, slot: int, now_us: int) -> bool:
        at_us = self._deliver_us(slot)
        if at_us <= now_us:
            self._offer(slot, False)
            return True
        if self.next_us == 0 or at_us < self.next_us:
            self.next_us = at_us
        return False

    def _offer(self, slot: int, ready: bool) -> None:
        """One that is due."""
        priority = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO) & 0xF
        if priority > self.priority:
            self.ready = 0
            self.timed = 0
            self.priority = priority
        elif priority < self.priority:
            return
        if ready:
            if self.ready == 0 or self.trees.number_of(slot) < self.trees.number_of(self.ready):
                self.ready = slot
        elif self.timed == 0 or self._is_earlier(slot, self.timed):
            self.timed = slot

    def _best(self) -> int:
        if self.ready == 0 or (self.timed != 0 and self._is_earlier(self.timed, self.ready)):
            return self.timed
        return self.ready

    def _is_earlier(self, slot: int, other: int) -> bool:
        own_us = self._deliver_us(slot)
        other_us = self._deliver_us(other)
        return own_us < other_us or (own_us == other_us and self.trees.number_of(slot) < self.trees.number_of(other))

    def _deliver_us(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_DELIVER_US)

    # ------------------------------------------------------------ held messages

    def next_held(self, bucket: int, key: int, rank: int, time_us: int, number: int) -> int:
        """The first held message behind this place in a bucket; 0 if there is none."""
        root_at = self.trees.root_at(L.B_KEYS, bucket)
        while self.words.load(root_at) != 0:
            self.trees.aim(key, 0, rank, time_us, number + 1)
            slot = self.trees.lower_in(L.B_KEYS, root_at)
            if slot == 0 or self._is_held(slot):
                return slot
            key = self.trees.key_of(slot)
            rank = self.trees.rank_of(L.B_KEYS, slot)
            time_us = self.trees.time_of(slot, rank)
            number = self.trees.number_of(slot)
        return 0

    # ------------------------------------------------------------ groups

    def groups(self, bucket: int, buckets: int, key: int, most: int, now_us: int) -> list[Group]:
        """The groups of so many buckets, from the one behind ``key`` (0: from the first) in the first of them; ``most``
        at most."""
        found: list[Group] = []
        end = min(bucket + buckets, self.trees.classes)
        while bucket < end and len(found) < most:
            root_at = self.trees.root_at(L.B_KEYS, bucket)
            slot = 0
            if self.words.load(root_at) != 0 and key != L.MASK64:
                self.trees.aim(key + 1, 0, 0, 0, 0)
                slot = self.trees.lower_in(L.B_KEYS, root_at)
            if slot == 0:
                bucket += 1
                key = 0
                continue
            key = self.trees.key_of(slot)
            found.append(self.measure(key, now_us))
        return found

    def measure(self, key: int, now_us: int) -> Group:
        """Count one group, run by run: of each type and rank the messages are neighbours."""
        group = Group.__new__(Group)
        group.key = key
        group.slot = 0
        group.waiting = 0
        group.due = 0
        group.oldest_us = 0
        group.busy = False
        self.trees.aim(key, 0, 0, 0, 0)
        slot = self.trees.lower(L.B_KEYS)
        while slot != 0 and self.trees.key_of(slot) == key:
            minor = self.trees.minor_of(L.B_KEYS, slot)
            rank = self.trees.rank_of(L.B_KEYS, slot)
            if self.exclusive and rank == L.RANK_BUSY:
                group.busy = True
            else:
                self._add_run(group, slot, minor, rank, now_us)
            self.trees.aim(key, minor, rank + 1, 0, 0)
            slot = self.trees.lower(L.B_KEYS)
        if group.busy:
            group.due = 0
        return group

    def _add_run(self, group: Group, slot: int, minor: int, rank: int, now_us: int) -> None:
        self.trees.aim(group.key, minor, rank, 0, 0)
        before = self.trees.count_before()
        self.trees.aim(group.key, minor, rank + 1, 0, 0)
        count = self.trees.count_before() - before
        group.waiting += count
        if rank & 1:
            self.trees.aim(group.key, minor, rank, now_us + 1, 0)
            count = self.trees.count_before() - before
        group.due += count
        at_us = self._deliver_us(slot)
        if group.slot == 0 or at_us < group.oldest_us:
            group.slot = slot
            group.oldest_us = at_us
