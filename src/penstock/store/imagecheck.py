"""Owns what must hold between the words of a kernel at rest: the invariants of docs/format.md, but for those of the
trees, which are ``treecheck.py``'s. Looks at a private copy; reads no record and touches no file.
"""

from __future__ import annotations

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.image import LIVE, Image
from penstock.store.publishing import Publishing
from penstock.store.treecheck import check_trees, is_held


def check_image(image: Image) -> None:
    """All of it."""
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
