"""Owns what is found wrong with a queue, in words for whoever runs it. Never decides what becomes of it."""

from __future__ import annotations

import msgspec

FINDINGS_MAX = 1000  # of a kernel full of noise not every word need be described


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be, and where."""

    path: str
    offset: int
    what: str


class Findings:
    """All of a restore, up to a limit."""

    def __init__(self) -> None:
        self.said: list[Finding] = []
        self._unsaid = 0

    def say(self, path: str, offset: int, what: str) -> None:
        if len(self.said) < FINDINGS_MAX:
            self.said.append(Finding(path, offset, what))
        else:
            self._unsaid += 1

    def end(self, path: str) -> None:
        """Say how many more there were."""
        if self._unsaid:
            self.said.append(Finding(path, 0, f"and {self._unsaid} more findings"))
            self._unsaid = 0
