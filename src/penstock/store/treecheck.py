"""Owns the answer to "are the trees by type and key whole?", for ``imagecheck.py``: who is in them, in which order, how
high, and who is held. Looks at a private copy of a kernel; only reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.store import layout as L
from penstock.store.image import Image

NAMES = {L.B_KEYS: "key", L.B_TYPES: "type"}


def is_held(image: Image, slot: int) -> bool:
    return bool(image.slot(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_HELD)


def check_trees(image: Image, by_state: dict[int, set[int]]) -> None:
    """What is in the trees is what belongs there, and of exclusive keys the right ones are held."""
    if not image.kernel.trees_at:
        return
    trees = image.kernel.classes.trees
    waiting = by_state[L.STATE_WAITING]
    keyed = set(waiting)
    if trees.exclusive:
        keyed |= by_state[L.STATE_PENDING] | by_state[L.STATE_CLAIMED]
    keyed = {slot for slot in keyed if image.kernel.is_classed(slot) and trees.key_of(slot)}
    typed = {slot for slot in waiting if image.kernel.is_classed(slot) and trees.type_of(slot)}
    typed -= {slot for slot in typed if is_held(image, slot)}
    for slot in waiting:
        if image.kernel.is_classed(slot) and not trees.key_of(slot) and not trees.type_of(slot):
            image.say(trees.links_at(L.B_TYPES, slot) + L.X_TYPE, f"slot {slot}: it has neither a type nor a key")
        if is_held(image, slot) and not (trees.exclusive and slot in keyed):
            image.say_slot(slot, L.S_INFO, "it is held, and has no exclusive key")
    for which, expected in ((L.B_KEYS, keyed), (L.B_TYPES, typed)):
        found: set[int] = set()
        for bucket in range(trees.classes):
            if image.view[trees.root_at(which, bucket)]:
                found.update(_check_tree(image, which, bucket))
        for odd in sorted(found ^ expected):
            image.say(
                trees.links_at(which, odd),
                f"slot {odd}: in the tree by {NAMES[which]} and not one for it, or the other way round",
            )
    if trees.exclusive and not image.findings:
        _check_held(image, keyed)


def _check_tree(image: Image, which: int, bucket: int) -> list[int]:
    """The slots of one tree, smallest first."""
    trees = image.kernel.classes.trees
    members: list[int] = []
    last: tuple[int, ...] = ()
    for slot in _in_order(image, which, trees.root_at(which, bucket)):
        place = place_of(image, which, slot)
        if place[0] & (trees.classes - 1) != bucket:
            image.say(trees.links_at(which, slot), f"slot {slot}: in the tree of bucket {bucket} by {NAMES[which]}")
        if place <= last:
            image.say(trees.links_at(which, slot), f"slot {slot}: out of order in the tree by {NAMES[which]}")
        last = place
        members.append(slot)
    return members


def place_of(image: Image, which: int, slot: int) -> tuple[int, ...]:
    """What the tree is sorted by."""
    trees = image.kernel.classes.trees
    rank = trees.rank_of(which, slot)
    return (
        trees.major_of(which, slot),
        trees.minor_of(which, slot),
        rank,
        trees.time_of(slot, rank),
        trees.number_of(slot),
    )


def _children(image: Image, which: int, slot: int) -> tuple[int, int]:
    pair = image.view[image.kernel.classes.trees.links_at(which, slot)]
    return pair & L.MASK32, pair >> 32


def _in_order(image: Image, which: int, root_at: int) -> Iterator[int]:
    """Every slot of a tree, and on the way whether it is where it may be: once, below a higher one, counted."""
    trees = image.kernel.classes.trees
    seen: set[int] = set()
    above: list[int] = []  # those whose smaller ones are under way
    slot, at, height = image.view[root_at], root_at, L.MASK64
    while slot or above:
        if slot:
            if slot >= image.slots or slot in seen:
                image.say(at, f"the tree by {NAMES[which]} leads to slot {slot} again or out of the table")
                return
            seen.add(slot)
            if trees.height_of(slot) > height:
                image.say(at, f"slot {slot}: above it in the tree by {NAMES[which]} is a lower one")
            if which == L.B_KEYS:
                _check_size(image, slot)
            above.append(slot)
            slot, at, height = _children(image, which, slot)[0], trees.links_at(which, slot), trees.height_of(slot)
        else:
            slot = above.pop()
            yield slot
            slot, at, height = _children(image, which, slot)[1], trees.links_at(which, slot), trees.height_of(slot)


def _check_size(image: Image, slot: int) -> None:
    trees = image.kernel.classes.trees
    below = [child for child in _children(image, L.B_KEYS, slot) if child < image.slots]
    at = trees.links_at(L.B_TYPES, slot) + L.X_SIZE
    image.expect(at, f"slot {slot}: the size of its tree by key", 1 + sum(trees.size_of(child) for child in below))


def _check_held(image: Image, keyed: set[int]) -> None:
    """Of each exclusive key the first ready and the first timed message are not held, if nobody has one; all others
    are."""
    trees = image.kernel.classes.trees
    keys: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for slot in keyed:
        keys.setdefault(trees.key_of(slot), []).append((place_of(image, L.B_KEYS, slot), slot))
    for members in keys.values():
        members.sort()
        first: dict[int, int] = {}  # by rank
        for place, slot in members:
            first.setdefault(place[2], slot)
        free = set() if L.RANK_BUSY in first else set(first.values())
        for place, slot in members:
            if is_held(image, slot) != (place[2] != L.RANK_BUSY and slot not in free):
                image.say_slot(slot, L.S_INFO, "of its key it is held and should not be, or the other way round")
