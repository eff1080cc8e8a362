"""Owns what the history is told of claims that are acknowledged. Never changes a claim, nor what waits."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.gather import F_NUMBER, F_SLOT, NOT_THERE, REFERENCE_WORDS, Collected, Gather, still_there
from penstock.store.verdictfiles import KeptAnswer
from penstock.timequeue.clients import Client

NOTED_A_TURN_MAX = 2048


class Done(NamedTuple):
    """Messages of a claim that is being acknowledged."""

    rows: array[int]
    records: Collected
    taken_us: array[int]
    messages: int


class ClaimHistory:
    """That of one receiver, of a queue that keeps a history."""

    def __init__(self, client: Client, files: ClaimFiles, receiver: str) -> None:
        self._client = client
        self._files = files
        self._receiver = receiver

    def look_up(self, behind: int, number: int) -> list[Done]:
        """What is about to be acknowledged: claims behind the one and up to the other. Without the lock: nobody but
        their receiver moves these messages."""
        client = self._client
        found = []
        gather = Gather(client.files.mappings(), client.signature)
        words, slots_at = client.kernel.words.view, client.kernel.get(L.H_SLOTS_AT)
        try:
            for claim in self._files.numbers():
                rows = self._files.read(claim) if behind < claim <= number else None
                if rows:
                    count = len(rows) // REFERENCE_WORDS
                    records = gather.collect(rows, 0, count, False)
                    taken_us = array("Q", bytes(L.WORD_BYTES * count))
                    for index, slot in enumerate(rows[F_SLOT::REFERENCE_WORDS]):
                        taken_us[index] = words[slots_at + slot * L.SLOT_WORDS + L.S_ATTEMPT_US]
                    still_there(words, slots_at, rows, 0, count, records.faults)  # others were acknowledged before
                    for index in self._put_off(claim, rows):
                        records.faults[index] = NOT_THERE
                    found.append(Done(rows, records, taken_us, count))
        finally:
            gather.close()
        return found

    def _put_off(self, claim: int, rows: array[int]) -> list[int]:
        """Which messages of a claim are not acknowledged: the verdicts were carried out."""
        try:
            said = self._files.verdicts(claim)
        except Corrupt:
            return list(range(len(rows) // REFERENCE_WORDS))
        left = {(one.slot, one.number) for one in said if not isinstance(one, KeptAnswer)}
        places = zip(rows[F_SLOT::REFERENCE_WORDS], rows[F_NUMBER::REFERENCE_WORDS], strict=True)
        return [index for index, place in enumerate(places) if place in left] if left else []

    def note(self, done: Done) -> None:
        """They are acknowledged."""
        client = self._client
        assert client.outcomes is not None and client.history is not None
        text = self._receiver.encode()
        for first in range(0, done.messages, NOTED_A_TURN_MAX):
            count = min(done.messages - first, NOTED_A_TURN_MAX)
            now_us = client.clock.wall_us()
            client.turn(
                client.outcomes.note_claimed, done.rows, done.records, done.taken_us, first, count, now_us, text
            )
        client.history.write()
