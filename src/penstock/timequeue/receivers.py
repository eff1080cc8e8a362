"""Owns what is done about receivers by others than themselves: who there is, what they have claimed, releasing what
one left that is gone for too long, and forgetting one. Never reads a message's body.
"""

from __future__ import annotations

import msgspec

from penstock.errors import Corrupt, NoSuchReceiver, ReceiverBusy
from penstock.store import claimfiles
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.claiming import NO_ENTRY, Claiming
from penstock.timequeue.claims import Owner, Receiver
from penstock.timequeue.clients import Client


class ClaimInfo(msgspec.Struct, frozen=True):
    """An open claim, for people."""

    receiver: str
    claim: int
    messages: int
    in_use: bool
    seen_at: float | None


class ReceiverInfo(msgspec.Struct, frozen=True):
    """A receiver, for people. ``timeout_s`` after it was seen anybody may release its claims; None: never."""

    name: str
    claims: int
    messages: int
    in_use: bool
    seen_at: float | None
    timeout_s: float | None


def release_overdue(queue: Owner) -> int:
    """Release the claims of receivers that are not there and were not for as long as they said; how many messages. One
    that comes back learns it from its next call for a claim. What is wrong with one is said when the others are done.
    """
    client = queue._mine()
    claiming = Claiming(client.kernel)
    released = 0
    failed: Corrupt | OSError | None = None
    for entry in range(L.RECEIVERS):
        if claiming.word(entry, L.N_COUNT) and claiming.word(entry, L.N_SEEN_US) == 0:
            client.turn(_see, client, claiming, entry)  # when it was seen, no restore knows
        if claiming.overdue(entry, client.clock.wall_us()):
            try:
                with Receiver(queue, claiming.name(entry), if_overdue=True) as receiver:
                    released += sum(receiver.release(number) for number in receiver.claims())
            except ReceiverBusy:
                client.turn(_see, client, claiming, entry)  # it is there, whatever it does
            except (Corrupt, OSError) as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return released


def _see(client: Client, claiming: Claiming, entry: int) -> None:
    """The time that a receiver may be away begins now."""
    claiming.seen(entry, client.clock.wall_us())
    client.kernel.commit()


def forget(queue: Owner, name: str) -> None:
    """Free the entry of a receiver that will not come back, and its files. Not with open claims, and not in use."""
    client = queue._mine()
    known = client.turn(Claiming(client.kernel).find, name) != NO_ENTRY
    if not known and name not in claimfiles.receivers(client.path):
        raise NoSuchReceiver(client.name, name)
    with Receiver(queue, name) as receiver:
        receiver._forget()


def receivers(client: Client) -> list[ReceiverInfo]:
    """All that have an entry or files."""
    claiming = Claiming(client.kernel)
    entries = {claiming.name(entry): entry for entry in range(L.RECEIVERS) if claiming.word(entry, L.N_LENGTH)}
    found = []
    for name in sorted({*entries, *claimfiles.receivers(client.path)}):
        files = ClaimFiles(client.path, name, client.signature)
        committed = files.committed()
        counts = [files.count(number) or 0 for number in files.numbers() if number > committed]
        seen_us = timeout_us = 0
        if name in entries:
            seen_us = claiming.word(entries[name], L.N_SEEN_US)
            timeout_us = claiming.word(entries[name], L.N_TIMEOUT_US)
        messages = sum(counts)
        open_ones = sum(count > 0 for count in counts)
        found.append(
            ReceiverInfo(name, open_ones, messages, files.is_locked(), seen_us / 1e6 or None, timeout_us / 1e6 or None)
        )
    return found


def open_claims(client: Client) -> list[ClaimInfo]:
    """Every receiver's open claims. Only looks: what a dead receiver left half done is shown as it is."""
    claiming = Claiming(client.kernel)
    found = []
    for name in claimfiles.receivers(client.path):
        files = ClaimFiles(client.path, name, client.signature)
        entry = client.turn(claiming.find, name)
        seen_us = claiming.word(entry, L.N_SEEN_US) if entry != NO_ENTRY else 0
        committed, in_use = files.committed(), files.is_locked()
        for number in files.numbers():
            count = files.count(number) if number > committed else None
            if count:
                found.append(ClaimInfo(name, number, count, in_use, seen_us / 1e6 or None))
    return found
