"""Owns the file that says which members of a macro queue a query's last micro-batch goes to, and the lock beside it.

``published/<query>/decision`` in the macro queue's directory is on disk before any member publishes, whole or not at
all: whoever tries the batch again finds where it went. Never opens a queue.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.errors import PublisherBusy
from penstock.store.namedfiles import NamedFiles
from penstock.store.publishfiles import PUBLISHED, check_name
from penstock.timequeue import forking
from penstock.timequeue.once import RETRY_S

DECISION = "decision"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Of a query: its last batch, the UUIDs of the members that get all of it, and how often it has decided."""

    penstock: int = 1
    batch: int
    members: list[str]
    turn: int


_decode = msgspec.json.Decoder(Decision).decode
_encode = msgspec.json.Encoder().encode


class DecisionFiles(NamedFiles):
    """The files of one query in a macro queue's directory."""

    def __init__(self, macro: Path, query: str) -> None:
        super().__init__(macro / PUBLISHED / check_name(query), 0)
        self._macro = macro
        self._query = query

    @contextlib.contextmanager
    def alone(self, wait_s: float) -> Iterator[None]:
        """One driver of a query at a time; ``PublisherBusy`` if another one is still at it after so many seconds."""
        deadline = time.monotonic() + wait_s
        while True:
            with forking.kept(self.lock, _close) as fd:
                if fd >= 0:
                    yield
                    return
            if time.monotonic() >= deadline:
                raise PublisherBusy(str(self._macro), self._query)
            time.sleep(RETRY_S)

    def read(self) -> Decision | None:
        try:
            return _decode((self.path / DECISION).read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise self._damaged(DECISION, "where a batch went", str(error)) from None

    def write(self, decision: Decision) -> None:
        """Durable when it returns."""
        self._replace(DECISION, _encode(decision))


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
