"""Owns what is printed: JSON for programs, tables for people, errors in one line. Decides nothing.

Results go to standard output, everything else to standard error, progress only where somebody can see it.
"""

from __future__ import annotations

import array
import base64
import contextlib
import errno
import fcntl
import io
import json
import math
import os
import select
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock import Message
from penstock.cli.signals import Held
from penstock.codec import Pickled

Shown = TypeVar("Shown")

PIPE_COLUMNS = 200  # without a terminal nobody wraps lines: wide enough for a whole row
PREVIEW_CHARS = 60
PREVIEW_BYTES = 4 * PREVIEW_CHARS  # no character has more
FILE_PORTION_BYTES = 1 << 20  # one write to a file, so that Ctrl-C does not wait for a gigabyte
READER_PAUSE_MS = 1  # between looks whether a pipe was read


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "whoever read the output went away")


def console() -> Console:
    """For tables. Text is text: no markup, since names and bodies come from anywhere."""
    out = sys.stdout
    width = None if out is not None and out.isatty() else PIPE_COLUMNS
    return _Console(markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


class Outlet:
    """Standard output for bytes. Made before anything is taken out of a queue for it: an error if there is none.

    A write is over when the system has all of it. It can be interrupted while it waits for a slow reader, and not once
    the last byte is out.
    """

    def __init__(self, held: Held) -> None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        sys.stdout.flush()
        self._held = held
        self._buffer = sys.stdout.buffer
        try:
            self._fd = sys.stdout.fileno()
        except OSError:  # not a file: a test's
            self._fd = -1
            return
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        # A pipe that can be written to takes this much without waiting, and a file always can.
        mode = os.fstat(self._fd).st_mode
        self._portion_bytes = FILE_PORTION_BYTES if stat.S_ISREG(mode) else select.PIPE_BUF
        self._is_pipe = stat.S_ISFIFO(mode)
        self._reader = select.poll()
        self._reader.register(self._fd, 0)  # nothing but the news that the reader has gone

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            self._buffer.write(data)
            return
        left = memoryview(data)
        while left:
            self._held.interruptible(self._poll.poll)
            try:
                left = left[os.write(self._fd, left[: self._portion_bytes]) :]
            except BlockingIOError:  # somebody else writes to it too, and has made it non-blocking
                continue

    def wait_until_read(self, meanwhile: Callable[[], None]) -> None:
        """A pipe's reader may go away with the pipe half full: wait until it has taken all that was written.

        ``BrokenPipeError`` if it goes away before. Other kinds of output have what was written.
        """
        while self.unread_bytes() > 0:
            if self._held.interruptible(self._reader.poll, READER_PAUSE_MS):
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            meanwhile()

    def keep(self) -> None:
        """What was written stays, here in any case."""

    def unread_bytes(self) -> int:
        if self._fd < 0 or not self._is_pipe:
            return 0
        left = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, left)
        return left[0]


class FileOutlet:
    """A file instead of standard output. It is made when there is something for it; what is not acknowledged in the end
    is cut off again, and if nothing is, the file goes."""

    def __init__(self, held: Held, path: Path) -> None:
        self._held = held
        self._path = path
        self._file: io.FileIO | None = None
        self._is_regular = False
        self._kept_bytes = 0

    def write(self, data: bytes) -> None:
        if self._file is None:
            self._file = io.FileIO(self._path, "w")
            self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        left = memoryview(data)
        try:
            while left:
                left = left[self._held.interruptible(self._file.write, left[:FILE_PORTION_BYTES]) or 0 :]
        except OSError as error:
            error.filename = error.filename or self._path
            raise

    def wait_until_read(self, meanwhile: Callable[[], None]) -> None:
        """Until it is on disk: a message that is acknowledged is nowhere else."""
        if self._file is not None and self._is_regular:
            os.fsync(self._file.fileno())
            meanwhile()

    def unread_bytes(self) -> int:
        return 0

    def keep(self) -> None:
        """What was written until now stays, whatever happens."""
        if self._file is not None and self._is_regular:
            self._kept_bytes = self._file.tell()

    def close(self) -> None:
        if self._file is None:
            return
        with self._file:
            if not self._is_regular or self._file.tell() == self._kept_bytes:
                return
            self._file.truncate(self._kept_bytes)
        if not self._kept_bytes:
            self._path.unlink(missing_ok=True)


def pause(seconds: float) -> None:
    """Sleep; ``BrokenPipeError`` as soon as whoever reads our output has gone."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # a test's, or none
        time.sleep(seconds)
        return
    reader = select.poll()
    reader.register(number, 0)  # nothing but the news that it has gone
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if reader.poll(math.ceil(left_s * 1000)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def say(text: str) -> None:
    """A result for people."""
    if sys.stdout is not None:
        sys.stdout.write(text + "\n")


def flush() -> None:
    """Let whoever follows the output see it now."""
    if sys.stdout is not None:
        sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON object in one line."""
    say(json.dumps(value))


def complain(text: str) -> None:
    """One line on standard error."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"penstock: {text}\n")
            sys.stderr.flush()


def describe(message: Message, *, body: bool = True) -> dict[str, Any]:
    """A message as JSON. Bytes are text where they are UTF-8 (``body``), else base64 (``body_base64``)."""
    found: dict[str, Any] = {
        "id": message.id,
        "number": message.number,
        "state": message.state,
        "priority": message.priority,
        "type": message.type,
        "key": message.key,
        "headers": message.headers,
        "enqueued_at": message.enqueued_at.isoformat(),
        "deliver_at": message.deliver_at.isoformat(),
        "attempts": message.attempts,
        "last_attempt_at": message.last_attempt_at.isoformat() if message.last_attempt_at else None,
        "lease_ends_at": message.lease_ends_at.isoformat() if message.lease_ends_at else None,
        "owner": message.owner or None,
    }
    if message._special or message.dedup_id is not None:
        found |= {
            "expires_at": message.expires_at.isoformat() if message.expires_at else None,
            "dedup_id": message.dedup_id,
            "reason": message.reason,
            "error": message.error,
            "history": [{"at": at.isoformat(), "error": text} for at, text in message.history],
            "attempts_before": message.attempts_before,
            "came_from": message.came_from,
        }
    if body:
        found |= described(message.body)
    return found


def described(value: Any) -> dict[str, Any]:
    """A body as JSON: what kind it is, and what it is.

    >>> described(b"a"), described([1])
    ({'kind': 'bytes', 'body': 'a'}, {'kind': 'json', 'body': [1]})
    """
    if isinstance(value, Pickled):
        return {"kind": "pickle", "body_base64": base64.b64encode(value.data).decode()}
    if not isinstance(value, bytes):
        return {"kind": "text" if isinstance(value, str) else "json", "body": value}
    try:
        return {"kind": "bytes", "body": value.decode()}
    except UnicodeDecodeError:
        return {"kind": "bytes", "body_base64": base64.b64encode(value).decode()}


def preview(data: bytes, size_bytes: int | None = None) -> str:
    """The start of a body of so many bytes, or of just these, in one harmless line.

    >>> preview(b"a\\nb\\x1b[31m"), preview(bytes(100))[-3:]
    ('a\\\\nb\\\\x1b[31m', '...')
    """
    text = data[:PREVIEW_BYTES].decode(errors="backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    whole = len(text) <= PREVIEW_CHARS and (len(data) if size_bytes is None else size_bytes) <= PREVIEW_BYTES
    return text if whole else text[: PREVIEW_CHARS - 3] + "..."


def table(*columns: str, numbers: tuple[str, ...] = (), whole: tuple[str, ...] = (), title: str | None = None) -> Table:
    """An empty table; ``numbers`` are set to the right, ``whole`` columns are never cut."""
    made = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", no_wrap=name in numbers or name in whole)
    return made


def show_all(
    rows: Table, found: Sequence[Shown], as_json: bool, cells: Callable[[Shown], list[str]], *, nothing: str
) -> None:
    """As lines of JSON, or as one table; ``nothing`` is what is said if there is none."""
    for one in found:
        if as_json:
            say_json(msgspec.to_builtins(one))
        else:
            rows.add_row(*cells(one))
    if rows.row_count:
        console().print(rows)
    elif not as_json:
        say(nothing)


def when(seconds: float | None) -> str:
    """A moment, in local time."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds") if seconds else "-"


@contextlib.contextmanager
def progress(*columns: ProgressColumn, show: bool = True) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    error = sys.stderr
    seen = show and error is not None and error.isatty()
    screen = Console(stderr=True) if seen else Console(file=io.StringIO())
    with Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn(),
        console=screen, disable=not seen, transient=True,
    ) as bar:  # fmt: skip
        yield bar
