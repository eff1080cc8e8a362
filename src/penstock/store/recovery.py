"""Owns the answer to "is this queue whole?" (S6). Only reads; the way back is ``restore.py``.

``check`` looks at a private copy of the kernel, taken under the lock, so that a live queue is not held up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from penstock.errors import Corrupt, WrongFormat
from penstock.store import claimfiles, publishfiles, record
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles, body_name
from penstock.store.findings import FINDINGS_MAX, Finding
from penstock.store.hashes import Hashes
from penstock.store.kernel import Kernel
from penstock.store.options import Options
from penstock.store.publishfiles import PublishFiles
from penstock.store.publishing import Publishing
from penstock.store.resizing import CUT_SHORT, NEXT, is_cut_short
from penstock.store.treecheck import check_trees, is_held
from penstock.store.trust import UNNOTED, needed
from penstock.store.words import Words

LIVE = (L.STATE_FILLING, L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


class Image:
    """A private copy of a kernel with the questions that checking asks."""

    def __init__(self, data: bytearray, path: str) -> None:
        self.path = path
        self.words = Words(data, f"{path} (a copy)")  # nobody shall take its stores for those of the mapping
        self.view = self.words.view
        self.kernel = Kernel(self.words)
        self.slots_at = self.view[L.H_SLOTS_AT]
        self.slots = self.view[L.H_SLOTS]
        self.files = self.view[L.H_FILES]
        self.findings: list[Finding] = []

    def slot(self, slot: int, field: int) -> int:
        return self.view[self.slots_at + slot * L.SLOT_WORDS + field]

    def number(self, slot: int) -> int:
        return self.slot(slot, L.S_WORD) >> L.NUMBER_SHIFT

    def state(self, slot: int) -> int:
        return (self.slot(slot, L.S_WORD) >> L.STATE_SHIFT) & 0xF

    def place(self, slot: int) -> tuple[int, int]:
        place = self.slot(slot, L.S_PLACE)
        return place >> L.PLACE_SHIFT, place & L.PLACE_MASK

    def say(self, word: int, what: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(self.path, word * L.WORD_BYTES, what))

    def say_slot(self, slot: int, field: int, what: str) -> None:
        self.say(self.slots_at + slot * L.SLOT_WORDS + field, f"slot {slot}: {what}")

    def expect(self, word: int, what: str, expected: int) -> None:
        if self.view[word] != expected:
            self.say(word, f"{what} is {self.view[word]}, expected {expected}")

    def walk(self, first: int, field: int, what: str) -> Iterator[int]:
        """Follow the next half of a pair of links, until 0, a loop or an impossible slot."""
        seen = set()
        slot = first
        while slot:
            if slot >= self.slots or slot in seen:
                self.say_slot(
                    min(slot, self.slots - 1), field, f"{what} leads to slot {slot} again or out of the table"
                )
                return
            seen.add(slot)
            yield slot
            slot = self.slot(slot, field) & L.MASK32


def check_image(image: Image) -> None:
    """All that must hold between the words of a kernel at rest; see docs/format.md for the numbered invariants."""
    fresh = image.view[L.H_FRESH]
    if not image.files < fresh <= image.slots:
        image.say(L.H_FRESH, f"first unused slot is {fresh}, with {image.slots} slots and {image.files} data files")
        return
    by_state: dict[int, set[int]] = {state: set() for state in range(16)}
    for slot in range(image.files + 1, fresh):
        word = image.slot(slot, L.S_WORD)
        number, state = image.number(slot), image.state(slot)
        if word != image.kernel.word_of(slot, number, state) or state not in (L.STATE_VACANT, *LIVE):
            image.say_slot(slot, L.S_WORD, f"the identity word {word:#018x} is damaged")
        if number >= image.view[L.H_NUMBER_NEXT]:
            image.say_slot(slot, L.S_WORD, f"number {number} was never given")
        by_state[state].add(slot)
    kept = _check_kept(image, by_state[L.STATE_VACANT])
    _check_order(image, by_state)
    check_trees(image, by_state)
    _check_vacant(image, by_state[L.STATE_VACANT] - kept)
    _check_chains(image, by_state)
    _check_claims(image, by_state[L.STATE_CLAIMED])
    _check_publishers(image)
    _check_remembered(image, by_state[L.STATE_FILLING])
    _check_ring(image, kept.union(*(by_state[state] for state in LIVE)))
    _check_numbers(image)
    _check_rest(image, fresh)
    image.expect(L.H_WAITING, "the count of waiting messages", len(by_state[L.STATE_WAITING]))
    image.expect(L.H_PENDING, "the count of pending messages", len(by_state[L.STATE_PENDING]))
    image.expect(L.H_CLAIMED, "the count of claimed messages", len(by_state[L.STATE_CLAIMED]))
    image.expect(L.H_FILLING, "the count of messages being filled", len(by_state[L.STATE_FILLING]))


def _check_kept(image: Image, vacant: set[int]) -> set[int]:
    """Slots whose message is gone and whose room must stay until the next index sync."""
    kept: set[int] = set()
    for head, what in ((L.H_RETAINED, "retained"), (L.H_RETIRING, "retiring")):
        for slot in image.walk(image.view[head], L.S_CHAIN, f"the list of {what} slots"):
            if slot not in vacant or slot in kept:
                image.say_slot(slot, L.S_WORD, f"on the list of {what} slots and not vacant, or there twice")
            kept.add(slot)
    image.expect(L.H_KEPT, "the count of retained and retiring slots", len(kept))
    return kept


def _check_numbers(image: Image) -> None:
    """A number that is called safe and is not below the limit could be given again after a power loss."""
    limit = image.view[L.H_NUMBER_LIMIT]
    if limit > L.MASK48:
        image.say(L.H_NUMBER_LIMIT, f"the number limit is {limit}")
    if image.view[L.H_NUMBER_NEXT] > limit:
        image.say(L.H_NUMBER_NEXT, f"the next number is {image.view[L.H_NUMBER_NEXT]}, with a limit of {limit}")
    if image.view[L.H_NUMBER_SAFE] > limit:
        image.say(L.H_NUMBER_SAFE, f"numbers below {image.view[L.H_NUMBER_SAFE]} are safe, with a limit of {limit}")


def _check_rest(image: Image, fresh: int) -> None:
    """Words that stand for themselves."""
    view = image.view
    if view[L.H_PRESENT] >> L.LIST_LEASES:
        image.say(L.H_PRESENT, "it has bits of lists that it does not speak of")
    if view[L.H_RETIRABLE] > (view[L.H_RETIRING] != 0):
        image.say(L.H_RETIRABLE, f"it is {view[L.H_RETIRABLE]}, with {view[L.H_RETIRING]} as the first retiring slot")
    if view[L.H_SYNC_FAILED]:
        image.say(
            L.H_SYNC_FAILED, f"a sync failed with error {view[L.H_SYNC_FAILED]}: nothing is confirmed until a repair"
        )
    first = image.slots_at + fresh * L.SLOT_WORDS
    unused = view[first : image.slots_at + image.slots * L.SLOT_WORDS : L.SLOT_WORDS]
    for slot in range(fresh, image.slots) if any(unused) else ():
        if image.slot(slot, L.S_WORD):
            image.say_slot(slot, L.S_WORD, "it was never used and has an identity word")


def _check_order(image: Image, by_state: dict[int, set[int]]) -> None:
    listed: set[int] = set()
    for which in range(L.LIST_LEASES + 1):
        state = L.STATE_PENDING if which == L.LIST_LEASES else L.STATE_WAITING
        members = _check_list(image, which, state)
        if listed & set(members):
            image.say(image.view[L.H_LISTS_AT] + which * L.LIST_WORDS, f"list {which} shares slots with another")
        listed |= set(members)
        if which < L.LIST_LEASES and bool(members) != bool(image.view[L.H_PRESENT] >> which & 1):
            image.say(L.H_PRESENT, f"the bit of list {which} is wrong")
    held = {slot for slot in by_state[L.STATE_WAITING] if is_held(image, slot)}
    for slot in sorted((by_state[L.STATE_WAITING] | by_state[L.STATE_PENDING]) - listed - held):
        image.say_slot(slot, L.S_WORD, "is on no list")
    for slot in sorted(held & listed):
        image.say_slot(slot, L.S_INFO, "is held, and on a list")


def _check_list(image: Image, which: int, state: int) -> list[int]:
    list_at = image.view[L.H_LISTS_AT] + which * L.LIST_WORDS
    members: list[int] = []
    before = 0
    last = (-1, -1)
    for slot in image.walk(image.view[list_at] & L.MASK32, L.S_LINKS, f"list {which}"):
        field = L.S_LEASE_US if which == L.LIST_LEASES else L.S_DELIVER_US
        key = (0 if which < L.LIST_TIMED else image.slot(slot, field), image.number(slot))
        if key <= last:
            image.say_slot(slot, L.S_LINKS, f"out of order on list {which}")
        if image.slot(slot, L.S_LINKS) >> 32 != before:
            image.say_slot(slot, L.S_LINKS, f"wrong link back on list {which}")
        if image.state(slot) != state or (which < L.LIST_LEASES and image.kernel.list_of(slot) != which):
            image.say_slot(slot, L.S_WORD, f"does not belong on list {which}")
        members.append(slot)
        before, last = slot, key
    image.expect(list_at + L.LIST_COUNT, f"the count of list {which}", len(members))
    for lane in range(L.LANES + 1):
        risen = [slot for slot in members if image.kernel.order.level(image.number(slot)) >= lane]
        ends = (risen[0] | risen[-1] << 32) if risen else 0
        image.expect(list_at + lane, f"head and tail of lane {lane} of list {which}", ends)
        for slot, ahead in zip(risen, [*risen[1:], 0], strict=False):
            if image.kernel.order.follower(which, lane, slot) != ahead:
                image.say_slot(slot, L.S_LANES, f"lane {lane} of list {which} is broken")
    return members


def _check_vacant(image: Image, vacant: set[int]) -> None:
    found = set()
    slot = image.view[L.H_VACANT]
    while slot and slot < image.slots and slot not in found:
        found.add(slot)
        slot = image.slot(slot, L.S_CHAIN)
    if slot:
        image.say(L.H_VACANT, f"the stack of vacant slots leads to slot {slot} again or out of the table")
    for odd in sorted(found ^ vacant):
        image.say_slot(odd, L.S_WORD, "vacant and not on the stack, or the other way round")


def _check_chains(image: Image, by_state: dict[int, set[int]]) -> None:
    owned: set[int] = set()
    first = image.view[L.H_CLIENTS_AT]
    for client in range(image.view[L.H_CLIENTS]):
        at = first + client * L.CLIENT_WORDS
        if not image.view[at + L.C_CHAIN] and not image.view[at + L.C_COUNT]:
            continue
        before = count = 0
        for slot in image.walk(image.view[at + L.C_CHAIN], L.S_CHAIN, f"the chain of client {client}"):
            if image.slot(slot, L.S_CHAIN) >> 32 != before:
                image.say_slot(slot, L.S_CHAIN, f"wrong link back in the chain of client {client}")
            owner = image.slot(slot, L.S_OWNER)
            incarnation = image.view[at + L.C_INCARNATION] & L.MASK32
            if owner != L.OWNER_CLIENT | client << L.CLIENT_SHIFT | incarnation:
                image.say_slot(slot, L.S_OWNER, f"in the chain of client {client}, but it is not the owner")
            owned.add(slot)
            before = slot
            count += 1
        image.expect(at + L.C_COUNT, f"the count of client {client}", count)
    for odd in sorted(owned ^ (by_state[L.STATE_PENDING] | by_state[L.STATE_FILLING])):
        image.say_slot(odd, L.S_OWNER, "pending without an owner, or owned without being pending")


def _check_claims(image: Image, claimed: set[int]) -> None:
    """The chains of the receivers: every claimed slot once, with its owner, by ascending claims."""
    owned: set[int] = set()
    for entry in range(L.RECEIVERS):
        at = image.view[L.H_NAMES_AT] + entry * L.RECEIVER_WORDS
        length = image.view[at + L.N_LENGTH]
        claims = image.view[at + L.N_CHAIN] or image.view[at + L.N_COUNT]
        if length > L.RECEIVER_NAME_BYTES or (claims and not length):
            image.say(at + L.N_LENGTH, f"the name of receiver {entry} has {length} bytes")
        if not claims:
            continue
        before = count = claim = 0
        for slot in image.walk(image.view[at + L.N_CHAIN] & L.MASK32, L.S_CHAIN, f"the chain of receiver {entry}"):
            if image.slot(slot, L.S_CHAIN) >> 32 != before:
                image.say_slot(slot, L.S_CHAIN, f"wrong link back in the chain of receiver {entry}")
            if image.slot(slot, L.S_OWNER) != L.OWNER_CLAIM | entry << L.CLIENT_SHIFT:
                image.say_slot(slot, L.S_OWNER, f"in the chain of receiver {entry}, but it is not the owner")
            if not claim <= image.slot(slot, L.S_LEASE_US) <= image.view[at + L.N_CLAIM]:
                image.say_slot(slot, L.S_LEASE_US, f"its claim is {image.slot(slot, L.S_LEASE_US)}, behind {claim}")
            claim = image.slot(slot, L.S_LEASE_US)
            owned.add(slot)
            before = slot
            count += 1
        if image.view[at + L.N_CHAIN] >> 32 != before:
            image.say(at + L.N_CHAIN, f"the last slot of receiver {entry} is wrong")
        image.expect(at + L.N_COUNT, f"the count of receiver {entry}", count)
    for odd in sorted(owned ^ claimed):
        image.say_slot(odd, L.S_OWNER, "claimed and on no receiver's chain, or the other way round")


def _check_publishers(image: Image) -> None:
    """Names are of a possible length and there once; numbers have their check bits."""
    publishing = Publishing(image.kernel)
    names: set[str] = set()
    for entry in range(L.PUBLISHERS):
        at = publishing.at(entry)
        if not image.view[at + L.P_LENGTH]:
            continue
        try:
            name = publishing.name(entry)
            publishing.last(entry)
        except Corrupt as error:
            image.say(error.offset // L.WORD_BYTES, f"publisher {entry}: {error.found}, expected {error.expected}")
            continue
        if name in names:
            image.say(at + L.P_NAME, f"publisher {entry}: {name} is there twice")
        names.add(name)
    image.expect(L.H_PUBLISHER, "the publisher of a batch that is not remembered yet", 0)


def _check_remembered(image: Image, filling: set[int]) -> None:
    """What is remembered is whole, there once, and of a message that is or was; what is being put is being filled."""
    remembered = image.kernel.remembered
    if remembered.buckets == 0:
        return
    named = {image.slot(slot, L.S_LANES): slot for slot in filling if image.slot(slot, L.S_LANES)}
    bucket_words = L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS
    for bucket in range(remembered.at, remembered.at + remembered.buckets * bucket_words, bucket_words):
        keys = [key for key in image.view[bucket : bucket + L.REMEMBERED_BUCKET] if key]
        if len(keys) != len(set(keys)):
            image.say(bucket, "something is remembered twice")
        for entry in range(bucket, bucket + L.REMEMBERED_BUCKET if keys else bucket):
            if not image.view[entry]:
                continue
            if not remembered.is_whole(entry):
                image.say(entry, "what is remembered here is damaged")
                continue
            slot, number = remembered.slot(entry), remembered.number(entry)
            cut_off = slot >= image.slots and remembered.is_settled(entry)  # by a resize, when its message had gone
            if not (image.files < slot < image.slots or cut_off) or number >= image.view[L.H_NUMBER_NEXT]:
                image.say(entry, f"message {number} of slot {slot} is remembered, which was never put")
            elif not cut_off and remembered.is_being_put(entry) and named.pop(entry, 0) != slot:
                image.say(entry, f"message {number} of slot {slot} is being put, and its slot does not name this entry")
    for entry, slot in named.items():
        image.say_slot(slot, L.S_LANES, f"entry {entry:#x} is to remember it, which does not")


def _check_ring(image: Image, live: set[int]) -> None:
    members: list[int] = []
    slot = 1
    while slot not in members[:1] and len(members) <= image.slots:
        members.append(slot)
        ahead = image.slot(slot, L.S_RING) & L.MASK32
        if ahead >= image.slots or image.slot(ahead, L.S_RING) >> 32 != slot:
            image.say_slot(slot, L.S_RING, "the ring is broken here")
            return
        slot = ahead
    sentinels = set(range(1, image.files + 1))
    for odd in sorted(set(members) ^ (live | sentinels)):
        image.say_slot(odd, L.S_RING, "in the ring and not in use, or the other way round")
    used = 0
    gaps = set()
    total = image.view[L.H_DATA_UNITS]
    for slot, ahead in zip(members, [*members[1:], 1], strict=True):
        start, units = image.place(slot)
        limit = total if ahead == 1 else image.place(ahead)[0]
        if start + units > limit or (units == 0) != (slot in sentinels):
            image.say_slot(slot, L.S_PLACE, f"its record at unit {start} of {units} units reaches into the next")
        elif start + units < limit:
            gaps.add(slot)
        used += units
    image.expect(L.H_USED_UNITS, "the count of used units", used)
    cursor = image.view[L.H_CURSOR]
    if cursor not in members:
        image.say(L.H_CURSOR, f"the ring's cursor is slot {cursor}, which is not in the ring")
    listed = list(image.walk(image.view[L.H_GAPS] & L.MASK32, L.S_GAP, "the list of gaps"))
    if image.view[L.H_GAPS] >> 32 != (listed[-1] if listed else 0):
        image.say(L.H_GAPS, "the tail of the list of gaps is wrong")
    for slot, before in zip(listed, [0, *listed], strict=False):
        if image.slot(slot, L.S_GAP) >> 32 != before:
            image.say_slot(slot, L.S_GAP, "wrong link back in the list of gaps")
    for odd in sorted(set(listed) ^ (gaps - {cursor})):
        image.say_slot(odd, L.S_GAP, "has a gap and is not listed, or the other way round")


def check_records(image: Image, files: LocalFiles, signature: int) -> None:
    """Every live message's record is there and whole, its slot agrees with it, and so is its body if that is a file."""
    spilled_bytes = 0
    moved = False
    hashes = Hashes(signature)
    for slot in range(image.files + 1, image.view[L.H_FRESH]):
        if image.state(slot) not in (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED):
            continue
        fault = record_fault(image, files, signature, slot)
        # The copy is older than the data: only a slot that has not moved on since can be said to be wrong.
        live = int.from_bytes(files.kernel[_slot_byte(image, slot) : _slot_byte(image, slot) + 8], "little")
        if live >> L.NUMBER_SHIFT != image.number(slot) or (live >> L.STATE_SHIFT) & 0xF not in LIVE:
            moved = True
        elif fault:
            path, offset = files.place_of(image.place(slot)[0])
            if len(image.findings) < FINDINGS_MAX:
                image.findings.append(Finding(path, offset, f"message {image.number(slot)}: {fault}"))
        else:
            spilled_bytes += _check_slot(image, files, slot, hashes)
    if not moved and not image.findings:
        for slot in range(image.files + 1, image.view[L.H_FRESH]):
            if image.state(slot) == L.STATE_FILLING and image.slot(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED:
                spilled_bytes += image.slot(slot, L.S_LEASE_US)
        for head in (L.H_RETAINED, L.H_RETIRING):
            for slot in image.walk(image.view[head], L.S_CHAIN, "a list of retained slots"):
                if image.slot(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED:
                    spilled_bytes += image.slot(slot, L.S_LEASE_US)
        image.expect(L.H_SPILLED_BYTES, "the bytes of bodies in files", spilled_bytes)


def _check_slot(image: Image, files: LocalFiles, slot: int, hashes: Hashes) -> int:
    """What a slot says of its message against the record; the bytes of its body in a file."""
    unit, units = image.place(slot)
    head = L.RECORD.unpack_from(data := files.read(unit, units))
    info = image.slot(slot, L.S_INFO)
    flags, codec, priority = info >> L.FLAGS_SHIFT & 0xFF, info >> L.CODEC_SHIFT & 0xFF, info & 0xFF
    flags &= ~L.FLAG_HELD
    if image.kernel.trees_at and not head[9] & L.FLAG_CLASSED:  # put before there were trees: its meta says it
        flags &= ~L.FLAG_CLASSED
    later = head[9] & L.FLAG_READY and not flags & L.FLAG_READY  # released with a delay
    if (flags | (L.FLAG_READY if later else 0), codec, priority) != (head[9], head[10] >> 4, head[10] & 0xF):
        image.say_slot(slot, L.S_INFO, "flags, codec or priority are not those of its record")
    if image.slot(slot, L.S_DELIVER_US) != head[3] and (flags & L.FLAG_READY or not info >> L.ATTEMPTS_SHIFT):
        image.say_slot(slot, L.S_DELIVER_US, "its delivery time is not that of its record")
    if image.kernel.trees_at:
        _check_hashes(image, slot, hashes, data[L.RECORD_BYTES : L.RECORD_BYTES + head[8]])
    return L.SPILL.unpack_from(data, L.RECORD_BYTES + head[8])[0] if head[9] & L.FLAG_SPILLED else 0


def _check_hashes(image: Image, slot: int, hashes: Hashes, meta: bytes) -> None:
    trees = image.kernel.classes.trees
    if hashes.read(meta) != image.kernel.is_classed(slot):
        image.say_slot(slot, L.S_INFO, "its flag says of type and key what its record does not")
    elif image.kernel.is_classed(slot) and (
        (hashes.type_hash, hashes.key_hash) != (trees.type_of(slot), trees.key_of(slot))
    ):
        at = trees.links_at(L.B_TYPES, slot) + L.X_TYPE
        image.say(at, f"slot {slot}: the hashes of type and key are not those of its record")


def _slot_byte(image: Image, slot: int) -> int:
    return (image.slots_at + slot * L.SLOT_WORDS) * L.WORD_BYTES


def record_fault(image: Image, files: LocalFiles, signature: int, slot: int) -> str | None:
    unit, units = image.place(slot)
    try:
        data = files.read(unit, units)
    except Corrupt as error:
        return str(error)
    number = image.number(slot)
    fault = record.fault(data, signature, number, slot, unit)
    if fault is None and L.RECORD.unpack_from(data)[9] & L.FLAG_SPILLED:
        name = body_name(number, slot)
        length, check = L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])
        try:
            if files.sum_body(name) == (length, check):
                return None
        except OSError as error:
            return f"its body, a file of {length} bytes, cannot be read: {error}"
        return f"its body, a file of {length} bytes, is damaged: {files.body_path(name)}"
    return fault


# ---------------------------------------------------------------- on a queue directory


def _copy(files: LocalFiles) -> Image:
    """Under the lock: the kernel as it is, what a dead process left half-done put right in the copy."""
    image = Image(bytearray(files.kernel), files.kernel_path)
    image.words.begin()
    batch = list(image.walk(image.view[L.H_INCOMING], L.S_CHAIN, "the incoming batch"))
    odd = [slot for slot in batch if slot <= image.files or image.state(slot) != L.STATE_FILLING]
    if odd or image.findings:
        raise Corrupt(
            image.path,
            offset=L.H_INCOMING * L.WORD_BYTES,
            expected="a batch of filled slots",
            found=f"slots {batch[:10]}, of which {odd[:10]} are not being filled",
        )
    image.kernel.recover()
    return image


def check_queue(path: str | os.PathLike[str], *, deep: bool = True, busy_s: float = 10.0) -> list[Finding]:
    """What is wrong with a queue; nothing if the list is empty. Only reads, and works while others use the queue.

    ``deep`` checks every message's record too.
    """
    where = Path(os.path.abspath(path))
    if is_cut_short(where):
        return [Finding(str(where / NEXT), 0, CUT_SHORT)]
    options = read_options(where)
    try:
        files = LocalFiles(where, options, busy_s=busy_s)
    except Corrupt as error:
        return [Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}")]
    with contextlib.closing(files):
        return check_files(files, options, deep=deep)


def check_files(files: LocalFiles, options: Options, *, deep: bool) -> list[Finding]:
    with held(files):
        features = files.kernel[L.H_FEATURES * L.WORD_BYTES : (L.H_FEATURES + 1) * L.WORD_BYTES]
        findings = _header_findings(files, options)
        if int.from_bytes(features, "little") & ~L.FEATURES and len(findings) <= 1:
            raise WrongFormat(f"{files.name}: a newer Penstock keeps things in this queue that this one does not know")
        if findings:
            return findings
        reason = reason_of(files)
        findings = [] if reason is None or reason == UNNOTED else [due(files, reason)]
        try:
            image = _copy(files)
        except Corrupt as error:
            return findings or [
                Finding(files.kernel_path, error.offset, f"expected {error.expected}, found {error.found}")
            ]
    check_image(image)
    if deep and not image.findings:
        check_records(image, files, options.signature)
        findings += _claim_findings(files, options)
        findings += _publisher_findings(files, options)
    return findings + image.findings


def _claim_findings(files: LocalFiles, options: Options) -> list[Finding]:
    """Files of claims that cannot be read."""
    findings = []
    for name in claimfiles.receivers(files.path):
        claims = ClaimFiles(files.path, name, options.signature)
        reads: list[Callable[[], object]] = [partial(claims.read, number) for number in claims.numbers()]
        reads += [partial(claims.verdicts, number) for number in claims.judged()]
        for read in (claims.committed, claims.timeout_us, *reads):
            try:
                read()
            except Corrupt as error:
                findings.append(Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}"))
    return findings


def _publisher_findings(files: LocalFiles, options: Options) -> list[Finding]:
    """Files of publishers that cannot be read."""
    findings = []
    for name in publishfiles.publishers(files.path):
        try:
            PublishFiles(files.path, name, options.signature).read()
        except Corrupt as error:
            findings.append(Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}"))
    return findings


def reason_of(files: LocalFiles) -> str | None:
    """Why the next to open the queue restores it; None if it does not. A living client's kernel is right."""
    with memoryview(files.kernel) as data, data.cast("Q") as words:
        reason = needed(files, words)
    return None if any(files.clients.alive(client) for client in range(L.CLIENTS)) else reason


def due(files: LocalFiles, reason: str) -> Finding:
    return Finding(files.kernel_path, L.H_BOOT_ID * L.WORD_BYTES, f"to be restored: {reason}")


def _header_findings(files: LocalFiles, options: Options) -> list[Finding]:
    view = memoryview(files.kernel).cast("Q")
    try:
        expected = options.regions()
        expected[L.H_UUID], expected[L.H_UUID + 1] = options.uuid_words
        expected[L.H_FILES] = len(options.data_files)
        expected[L.H_DATA_UNITS] = files.data_units
        return [
            Finding(
                files.kernel_path, word * L.WORD_BYTES, f"header word {word} is {view[word]:#x}, expected {value:#x}"
            )
            for word, value in expected.items()
            if view[word] != value
        ]
    finally:
        view.release()


@contextlib.contextmanager
def held(files: LocalFiles) -> Iterator[None]:
    try:
        files.lock.acquire()
        yield
    finally:
        files.lock.release()
