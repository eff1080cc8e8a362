"""Owns the trees by type and by key inside the slots: insert, remove, the first behind a place, how many before it.

Each bucket of the table of classes has the roots of two treaps, binary trees whose heights follow from the messages'
numbers: nothing about it is stored, and the same messages always make the same tree. A bucket's tree holds all types
(keys) whose hashes fall into it and is ordered by hash first, so that each is a run of neighbours. Never decides which
slots belong into a tree; never reads the clock, never locks; all changes go through the caller's transaction.
"""

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import layout as L
from penstock.store.words import Words


class Trees:
    """The trees of one kernel. Slot 0 is "none"."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.slots_at = self.words.load(L.H_SLOTS_AT)
        self.trees_at = self.words.load(L.H_TREES_AT)
        self.classes_at = self.words.load(L.H_CLASSES_AT)
        self.classes = self.words.load(L.H_CLASSES)
        self.exclusive = self.words.load(L.H_FEATURES) & L.FEATURE_EXCLUSIVE != 0
        # The place that a search is for, see ``aim``.
        self.major = 0
        self.minor = 0
        self.rank = 0
        self.time_us = 0
        self.number = 0
        if not cython.compiled:
            self.path = [0] * L.TREE_HEIGHT_MAX

    # ------------------------------------------------------------ what the order is made of

    def type_of(self, slot: int) -> int:
        return self.words.load(self.trees_at + slot * L.TREE_WORDS + L.X_TYPE)

    def key_of(self, slot: int) -> int:
        return self.words.load(self.trees_at + slot * L.TREE_WORDS + L.X_KEY)

    def number_of(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS) >> L.NUMBER_SHIFT

    def size_of(self, slot: int) -> int:
        """Slots of the tree by key from this one down."""
        return self.words.load(self.trees_at + slot * L.TREE_WORDS + L.X_SIZE) if slot else 0

    def major_of(self, which: int, slot: int) -> int:
        return self.key_of(slot) if which == L.B_KEYS else self.type_of(slot)

    def minor_of(self, which: int, slot: int) -> int:
        """What comes after the hash: in a tree by key the type, unless keys are exclusive."""
        return self.type_of(slot) if which == L.B_KEYS and not self.exclusive else 0

    def rank_of(self, which: int, slot: int) -> int:
        """Who comes first within a hash. Within an odd rank the delivery time counts before the number."""
        info = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO)
        timed = 0 if (info >> L.FLAGS_SHIFT) & L.FLAG_READY else 1
        if which == L.B_KEYS and self.exclusive:
            word = self.words.load(self.slots_at + slot * L.SLOT_WORDS)
            return L.RANK_BUSY if (word >> L.STATE_SHIFT) & 0xF != L.STATE_WAITING else L.RANK_READY + timed
        return 2 * (L.PRIORITIES - 1 - (info & 0xF)) + timed

    def time_of(self, slot: int, rank: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_DELIVER_US) if rank & 1 else 0

    def height_of(self, slot: int) -> int:
        """Of two slots in a tree the one with the greater height is nearer to the root. No two are equal."""
        mixed = (self.number_of(slot) * L.MIX_NUMBER) & L.MASK64
        mixed ^= mixed >> 32
        mixed = (mixed * L.MIX_HASH) & L.MASK64
        return mixed ^ (mixed >> 29)

    # ------------------------------------------------------------ searching

    def aim(self, major: int, minor: int, rank: int, time_us: int, number: int) -> None:
        """What the next search is for."""
        self.major = major
        self.minor = minor
        self.rank = rank
        self.time_us = time_us
        self.number = number

    def root_at(self, which: int, major: int) -> int:
        """The word that has the root of the tree with this hash."""
        return self.classes_at + (major & (self.classes - 1)) * L.CLASS_WORDS + which

    def lower(self, which: int) -> int:
        """The first slot at the place that was aimed at, or behind it in its bucket; 0 if there is none."""
        return self.lower_in(which, self.root_at(which, self.major))

    def lower_in(self, which: int, root_at: int) -> int:
        node = self.words.load(root_at) & L.MASK32
        found = 0
        hops = 0
        while node != 0:
            if self._is_before(which, node):
                node = self._child(which, node, 1)
            else:
                found = node
                node = self._child(which, node, 0)
            hops += 1
            if hops > L.TREE_HEIGHT_MAX:
                self._refuse(which, found)
                return 0
        return found

    def count_before(self) -> int:
        """How many slots of the tree by key are before the place that was aimed at, in its bucket."""
        node = self.words.load(self.root_at(L.B_KEYS, self.major)) & L.MASK32
        count = 0
        hops = 0
        while node != 0:
            if self._is_before(L.B_KEYS, node):
                count += self.size_of(self._child(L.B_KEYS, node, 0)) + 1
                node = self._child(L.B_KEYS, node, 1)
            else:
                node = self._child(L.B_KEYS, node, 0)
            hops += 1
            if hops > L.TREE_HEIGHT_MAX:
                self._refuse(L.B_KEYS, node)
                return 0
        return count

    def _is_before(self, which: int, slot: int) -> bool:
        own = self.major_of(which, slot)
        if own != self.major:
            return own < self.major
        own = self.minor_of(which, slot)
        if own != self.minor:
            return own < self.minor
        rank = self.rank_of(which, slot)
        if rank != self.rank:
            return rank < self.rank
        own = self.time_of(slot, rank)
        if own != self.time_us:
            return own < self.time_us
        return self.number_of(slot) < self.number

    def _aim_at(self, which: int, slot: int) -> None:
        rank = self.rank_of(which, slot)
        self.aim(
            self.major_of(which, slot),
            self.minor_of(which, slot),
            rank,
            self.time_of(slot, rank),
            self.number_of(slot),
        )

    # ------------------------------------------------------------ changing

    def insert(self, which: int, slot: int) -> None:
        """Link a slot whose hash, flags, time and state are set already."""
        self._aim_at(which, slot)
        height = self.height_of(slot)
        above = 0
        side = 0
        node = self.words.load(self.root_at(which, self.major)) & L.MASK32
        hops = 0
        while node != 0 and self.height_of(node) > height:
            if which == L.B_KEYS:
                self._set_size(node, self.size_of(node) + 1)
            above = node
            side = 1 if self._is_before(which, node) else 0
            node = self._child(which, node, side)
            hops += 1
            if hops > L.TREE_HEIGHT_MAX:
                self._refuse(which, node)
                return
        self._split(which, slot, node)
        self._set_child(which, above, side, slot)

    def _split(self, which: int, slot: int, node: int) -> None:
        """What was from ``node`` down goes below ``slot``: what is before it to its left, the rest to its right."""
        left = slot
        left_side = 0
        right = slot
        right_side = 1
        depth = 0
        while node != 0:
            if depth == L.TREE_HEIGHT_MAX:
                self._refuse(which, node)
                return
            self.path[depth] = node
            depth += 1
            if self._is_before(which, node):
                self._set_child(which, left, left_side, node)
                left = node
                left_side = 1
                node = self._child(which, node, 1)
            else:
                self._set_child(which, right, right_side, node)
                right = node
                right_side = 0
                node = self._child(which, node, 0)
        self._set_child(which, left, left_side, 0)
        self._set_child(which, right, right_side, 0)
        if which == L.B_KEYS:
            while depth > 0:
                depth -= 1
                self._measure(self.path[depth])
            self._measure(slot)

    def remove(self, which: int, slot: int) -> None:
        """Unlink a slot that is as it was when it was linked."""
        self._aim_at(which, slot)
        above = 0
        side = 0
        node = self.words.load(self.root_at(which, self.major)) & L.MASK32
        hops = 0
        while node != slot:
            if node == 0 or hops > L.TREE_HEIGHT_MAX:
                self._refuse(which, slot)
                return
            if which == L.B_KEYS:
                self._set_size(node, self.size_of(node) - 1)
            above = node
            side = 1 if self._is_before(which, node) else 0
            node = self._child(which, node, side)
            hops += 1
        self._join(which, above, side, self._child(which, slot, 0), self._child(which, slot, 1))

    def _join(self, which: int, above: int, side: int, left: int, right: int) -> None:
        """Two trees, of which one is before the other, become one."""
        hops = 0
        while left != 0 and right != 0:
            size = self.size_of(left) + self.size_of(right) if which == L.B_KEYS else 0
            taken_left = self.height_of(left) > self.height_of(right)
            taken = left if taken_left else right
            self._set_child(which, above, side, taken)
            if which == L.B_KEYS:
                self._set_size(taken, size)
            above = taken
            if taken_left:
                side = 1
                left = self._child(which, taken, 1)
            else:
                side = 0
                right = self._child(which, taken, 0)
            hops += 1
            if hops > L.TREE_HEIGHT_MAX:
                self._refuse(which, taken)
                return
        self._set_child(which, above, side, left if left != 0 else right)

    # ------------------------------------------------------------ links

    def links_at(self, which: int, slot: int) -> int:
        if which == L.B_KEYS:
            return self.slots_at + slot * L.SLOT_WORDS + L.S_CLASS_LINKS
        return self.trees_at + slot * L.TREE_WORDS + L.X_TYPE_LINKS

    def _child(self, which: int, slot: int, side: int) -> int:
        pair = self.words.load(self.links_at(which, slot))
        return (pair >> 32) if side else (pair & L.MASK32)

    def _set_child(self, which: int, above: int, side: int, slot: int) -> None:
        """Below ``above``; 0: the root of the tree that was aimed at."""
        if above == 0:
            self.words.put(self.root_at(which, self.major), slot)
            return
        at = self.links_at(which, above)
        pair = self.words.load(at)
        if side:
            self.words.put(at, (pair & L.MASK32) | (slot << 32))
        else:
            self.words.put(at, (pair >> 32 << 32) | slot)

    def _set_size(self, slot: int, size: int) -> None:
        self.words.put(self.trees_at + slot * L.TREE_WORDS + L.X_SIZE, size)

    def _measure(self, slot: int) -> None:
        self._set_size(
            slot, 1 + self.size_of(self._child(L.B_KEYS, slot, 0)) + self.size_of(self._child(L.B_KEYS, slot, 1))
        )

    def _refuse(self, which: int, slot: int) -> None:
        """A loop, or a link that is missing, in a damaged kernel: let commit() refuse."""
        self.words.bad = self.links_at(which, slot) + 1
