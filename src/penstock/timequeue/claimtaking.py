"""Owns how due messages are taken into a claim: a bounded number a turn, what comes first, or what a selection finds.
Never writes a file, and decides nothing about what becomes of a claim.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.gather import F_INFO, F_PLACE, REFERENCE_WORDS
from penstock.timequeue.clients import RETURNED_A_TURN_MAX, Client
from penstock.timequeue.selection import ANY_NUMBER, Selection

CLAIMED_A_TURN_MAX = 2048  # about a millisecond under the lock, compiled
UNITS_MOST = 1 << 62

Rows: TypeAlias = "array[int]"  # REFERENCE_WORDS words for each message: see store/gather.py

_ROOM: Rows = array("Q", bytes(L.WORD_BYTES * REFERENCE_WORDS * CLAIMED_A_TURN_MAX))


class Taking:
    """For one claim of a receiver: its entry in the kernel, and how it takes its turns."""

    def __init__(
        self, client: Client, claiming: Claiming, entry: int, turn: Callable[..., Any], *, at_least_one: bool = True
    ) -> None:
        self._client = client
        self._claiming = claiming
        self._entry = entry
        self._turn = turn
        self._at_least_one = at_least_one  # however large it is

    def begin(self) -> int:
        """The number of the claim. What others let go of comes back before anything is taken, to keep the order."""
        number = 0
        while number == 0:
            number = int(self._turn(self._begin))
        return number

    def _begin(self) -> int:
        """0 if there is more that comes back."""
        client = self._client
        now_us = client.clock.wall_us()
        client.advance_rates(now_us)
        client.table.note(client.index, L.CLIENT_CONSUMES)
        expired = client.kernel.expire(client.clock.boot_us(), now_us, RETURNED_A_TURN_MAX)
        if expired + client.return_from_dead() >= RETURNED_A_TURN_MAX:
            return 0
        self._claiming.seen(self._entry, now_us)
        client.kernel.commit()
        return self._claiming.word(self._entry, L.N_CLAIM) + 1

    def collect(self, number: int, most_rows: int, most_bytes: int | None, selection: Selection | None) -> Rows:
        """Turn by turn, what is to be claimed; nothing only if there is nothing of it that is due."""
        room_bytes = UNITS_MOST if most_bytes is None else most_bytes
        rows = self._collect(number, most_rows, room_bytes, selection)
        while selection is not None and not rows and self._at_least_one and self._goes_on(selection, most_rows):
            # What it had found went to others: there may be more behind that.
            rows = self._collect(number, most_rows, room_bytes, selection)
        return rows

    def _collect(self, number: int, most_rows: int, room_bytes: int, selection: Selection | None) -> Rows:
        """What comes first, as long as that is wanted, and then what is chosen."""
        rows: Rows = array("Q")
        if selection is None or selection.takes_any:
            room_bytes = self._collect_by(self._take_first, rows, number, most_rows, room_bytes, selection)
            if selection is None or not self._may_choose(selection):
                return rows
        selection.look(most_rows)
        self._collect_by(self._take_chosen, rows, number, most_rows, room_bytes, selection)
        selection.forget_taken()
        return rows

    def _may_choose(self, selection: Selection) -> bool:
        """Whether what is wanted may be behind what is not."""
        return self._claiming.late or not selection.takes_any

    def _goes_on(self, selection: Selection, most_rows: int) -> bool:
        return self._may_choose(selection) and selection.look(most_rows) > 0

    def _collect_by(
        self,
        take: Callable[..., tuple[int, int, bool]],
        rows: Rows,
        number: int,
        most_rows: int,
        room_bytes: int,
        selection: Selection | None,
    ) -> int:
        """To the end of ``rows``; the bytes that are left."""
        more = True
        while more and len(rows) < most_rows * REFERENCE_WORDS:
            most = min(most_rows - len(rows) // REFERENCE_WORDS, CLAIMED_A_TURN_MAX)
            empty = self._at_least_one and not rows
            first = len(rows)
            rows.extend(_ROOM[: most * REFERENCE_WORDS])
            with memoryview(rows) as whole, whole[first:] as part:
                count, used_bytes, more = self._turn(take, part, selection, number, most, room_bytes, empty)
            del rows[first + count * REFERENCE_WORDS :]
            room_bytes = max(room_bytes - used_bytes, 0)
        return room_bytes

    def _take_first(
        self, part: memoryview, selection: Selection | None, number: int, most: int, room_bytes: int, empty: bool
    ) -> tuple[int, int, bool]:
        """One turn's worth: how many references, their bytes on disk, and whether there may be more."""
        now_us = self._client.clock.wall_us()
        due_us, below = (now_us, ANY_NUMBER) if selection is None else (selection.due_us(now_us), selection.below)
        room = room_bytes // L.UNIT_BYTES
        count = self._claiming.take(part, most, room, empty, now_us, self._entry, number, due_us, below)
        used_bytes, spilled = self._used(part, count)
        return count, used_bytes, count == most or spilled

    def _take_chosen(
        self, part: memoryview, selection: Selection, number: int, most: int, room_bytes: int, empty: bool
    ) -> tuple[int, int, bool]:
        """The same, of what a selection has found."""
        first = selection.taken
        end = first + min(most, selection.count - first)
        now_us = self._client.clock.wall_us()
        room = room_bytes // L.UNIT_BYTES
        chosen = selection.found
        count = self._claiming.take_chosen(chosen, first, end, part, room, empty, now_us, self._entry, number)
        looked = selection.taken = self._claiming.looked
        used_bytes, spilled = self._used(part, count)
        return count, used_bytes, looked < selection.count and (looked == end or spilled)

    def _used(self, part: memoryview, count: int) -> tuple[int, bool]:
        """Bytes on disk of what was taken last, and whether the last message has a file, which is counted here."""
        used_bytes = self._claiming.used_units * L.UNIT_BYTES
        last = (count - 1) * REFERENCE_WORDS
        spilled = count > 0 and bool(part[last + F_INFO] >> L.FLAGS_SHIFT & L.FLAG_SPILLED)
        if spilled:
            used_bytes += spilled_bytes(self._client, part[last])
        return used_bytes, spilled


def size_bytes(client: Client, rows: Rows) -> int:
    """What claimed messages have on disk together, as ``most_bytes`` counts it."""
    units = sum(place & L.PLACE_MASK for place in rows[F_PLACE::REFERENCE_WORDS])
    spilled = sum(
        spilled_bytes(client, rows[index * REFERENCE_WORDS])
        for index, info in enumerate(rows[F_INFO::REFERENCE_WORDS])
        if info >> L.FLAGS_SHIFT & L.FLAG_SPILLED
    )
    return units * L.UNIT_BYTES + spilled


def spilled_bytes(client: Client, slot: int) -> int:
    """The size of a body that is a file, as its record says."""
    place = client.kernel.field(slot, L.S_PLACE)
    data = client.files.read(place >> L.PLACE_SHIFT, place & L.PLACE_MASK)
    return int(L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])[0])
