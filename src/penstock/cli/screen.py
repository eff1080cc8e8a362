"""Owns the part of a terminal that is drawn again and again, with plain control sequences. Never decides what is shown.

Where there is no terminal, ``live`` is false and nothing is drawn; the cursor is back when it ends, however it ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.cells import cell_len

from penstock.cli.output import PIPE_COLUMNS, flush

HIDE = "\x1b[?25l"
SHOW = "\x1b[?25h"
CLEAR = "\x1b[H\x1b[2J"
UP = "\x1b[{}F"
TO_END_OF_LINE = "\x1b[K"
TO_END = "\x1b[J"


class Screen:
    """Some lines of the terminal."""

    def __init__(self, *, active: bool) -> None:
        self.live = active and sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0
        self._size = self._look()
        self._shown = False

    def _look(self) -> os.terminal_size:
        try:
            found = os.get_terminal_size(sys.stdout.fileno()) if self.live else None
        except (OSError, ValueError):
            found = None
        return found if found is not None and found.columns else os.terminal_size((PIPE_COLUMNS, 1000))

    @property
    def columns(self) -> int:
        """How long a line may be now."""
        return self._look().columns

    @property
    def first(self) -> bool:
        """Whether this is asked for the first time."""
        first, self._shown = not self._shown, True
        return first

    def draw(self, lines: Sequence[str]) -> None:
        """These in the place of the last ones. What is below the last row of the terminal is not shown."""
        size = self._look()
        most = max(size.lines - 1, 1)
        if len(lines) > most:
            lines = [*lines[: most - 1], fit(f"... and {len(lines) - most + 1} more lines", size.columns)]
        start = UP.format(self._drawn) if self._drawn else ""
        if size != self._size:  # what was drawn has been wrapped anew: nobody knows where it is
            start, self._size = CLEAR, size
        self._drawn = len(lines)
        sys.stdout.write(start + "".join(f"{line}{TO_END_OF_LINE}\n" for line in lines) + TO_END)

    def __enter__(self) -> Self:
        if self.live:
            sys.stdout.write(HIDE)
            flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live and not isinstance(error, OSError):
            sys.stdout.write(SHOW)
            flush()


def fit(text: str, width: int, *, end: bool = False) -> str:
    """A text in one harmless line that is not too long; with ``end`` its end is what stays.

    >>> fit("a long line", 6), fit("a long line", 6, end=True), fit("a\\x1b[2Jb", 99)
    ('a lon…', '… line', 'a\\\\x1b[2Jb')
    >>> fit("注文の列", 6), width_of("注文の列")
    ('注文…', 8)
    """
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    while text and width_of(text) > width - 1:
        text = text[1:] if end else text[:-1]
    return "…" + text if end else text + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes: some characters take two."""
    return cell_len(text)
