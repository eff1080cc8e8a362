"""Of a restore: what was put is remembered again, as far as it is certain.

An entry that speaks of a message which never came to be would swallow the put that is repeated for it. So one of the
old table stays only if its message lives, or if it is certain that it was published and removed. What is missing is
made anew from the records of live messages. Never decides by a clock.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from penstock.codec import decode_meta
from penstock.store import layout as L
from penstock.store import record
from penstock.store.files import LocalFiles
from penstock.store.kernel import Kernel
from penstock.store.keys import MOVE_KEPT_US, dedup_key, origin_key


class Recall:
    """What the old kernel remembers, into the table of the new one."""

    def __init__(self, kernel: Kernel, old: Any, *, cut_short: bool) -> None:
        self._kernel = kernel
        self._new = kernel.remembered
        self._old = old
        self._cut_short = cut_short

    def keep(self) -> None:
        """Entries stay where they are: a restore that is done again finds them in the same place."""
        bucket_words = L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS
        for bucket in range(self._new.at, self._new.at + self._new.buckets * bucket_words, bucket_words):
            if not self._old[bucket : bucket + L.REMEMBERED_BUCKET].tobytes().strip(b"\0"):
                continue  # most are empty
            for entry in range(bucket, bucket + L.REMEMBERED_BUCKET):
                if self._old[entry]:
                    self._keep(entry)

    def _keep(self, entry: int) -> None:
        """The new table has it until it is known whether it is certain."""
        for column in range(L.REMEMBERED_WORDS):
            at = entry + column * L.REMEMBERED_BUCKET
            self._kernel.note(at, self._old[at])
        if self._new.is_whole(entry) and self._is_certain(entry):
            self._new.settle(entry)
        else:
            for column in range(L.REMEMBERED_WORDS):
                self._kernel.note(entry + column * L.REMEMBERED_BUCKET, 0)
        self._kernel.commit()

    def _is_certain(self, entry: int) -> bool:
        slot, number = self._new.slot(entry), self._new.number(entry)
        if slot >= self._kernel.slots:
            return self._new.is_settled(entry)  # cut off by a resize, when its message had gone
        if slot <= self._kernel.get(L.H_FILES):
            return False
        return self._lives(slot, number) or (self._new.is_settled(entry) and self._has_gone(entry, slot, number))

    def _lives(self, slot: int, number: int) -> bool:
        """It waits, or is claimed again already: the receivers come before this."""
        word = self._kernel.field(slot, L.S_WORD)
        return word in (self._kernel.word_of(slot, number, state) for state in (L.STATE_WAITING, L.STATE_CLAIMED))

    def _has_gone(self, entry: int, slot: int, number: int) -> bool:
        """A message that was published and does not live: was it removed, or is it lost? One whose record was on disk
        before it was published was removed. So was one with another in its slot since; and one whose word says so,
        unless a restore wrote that which was cut short."""
        word = self._old[self._kernel.slots_at + slot * L.SLOT_WORDS]
        if self._new.last(entry) & L.PUT_SYNCED or word >> L.NUMBER_SHIFT > number:
            return True
        return not self._cut_short and word == self._kernel.word_of(slot, number, L.STATE_VACANT)

    def add_live(self, files: LocalFiles, signature: int, slots: list[int]) -> None:
        """Live messages that are to be remembered, where the bucket has room."""
        for slot in slots:
            number = self._kernel.number(slot)
            if not self._lives(slot, number):
                continue
            place = self._kernel.field(slot, L.S_PLACE)
            unit, units = place >> L.PLACE_SHIFT, place & L.PLACE_MASK
            parts = record.Parts()
            files.read_record(parts, unit, units, signature, number, slot)
            with contextlib.suppress(msgspec.DecodeError):  # whoever gets the message says so
                meta = decode_meta(parts.meta)
                if meta.d is not None and meta.u is not None:
                    self._add(dedup_key(meta.d, signature), meta.u, number, slot)
                if meta.s is not None:
                    self._add(origin_key(meta.s, signature), parts.enqueued_us + MOVE_KEPT_US, number, slot)

    def _add(self, key: int, until_us: int, number: int, slot: int) -> None:
        if not self._new.find(key, 0):
            self._new.add(key, until_us, number, slot, L.PUT_SYNCED, 0)
            self._kernel.commit()
