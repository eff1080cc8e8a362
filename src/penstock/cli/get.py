"""``penstock get``: take messages out. Acknowledged when they are written and flushed, given back when that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress

import penstock
from penstock import Corrupt, LeaseLost, Message, QueueEmpty
from penstock.cli.exits import NOTHING, OK
from penstock.cli.opening import open_any
from penstock.cli.options import Json, OnlyKeys, OnlyTypes, QueuePath, examples
from penstock.cli.output import FileOutlet, Outlet, complain, describe, progress
from penstock.cli.signals import Held
from penstock.cli.values import span_s

FOREVER_S = 1e9
WHOLE_BYTES_MAX = 1 << 20  # checked before the first byte is written; a larger one is written as it is read
PIECE_BYTES = 1 << 20

EXAMPLES = examples(
    "penstock get orders",
    "penstock get orders --timeout 10s --json",
    "penstock get orders --count 100 --batch 100 > orders.txt",
    'penstock get orders --follow | while read -r line; do echo "$line"; done',
    "penstock get orders --follow --timeout 0 > everything-that-is-due.txt",
    "penstock get orders --type invoice --type refund",
    "penstock get mails --key example.com --count 500 --batch 500",
    "penstock get orders --keep",
    "penstock get images --output image.iso",
)


def get(
    queue: QueuePath,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=span_s,
            metavar="TIME",
            help="Wait so long for each message: 10, 5m. Without: not at all, or with --follow for ever.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Up to this many messages.")] = 1,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or until --timeout passes.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", "--no-ack", help="Give the messages back in the end instead of acknowledging them."),
    ] = False,
    batch: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="Take and acknowledge so many at once: faster; given back together too."),
    ] = 1,
    lease: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Keep them so long at most while writing.")
    ] = None,
    type: OnlyTypes = None,
    key: OnlyKeys = None,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes of the bodies alone, no newline after each.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, as with --raw, instead of the terminal.")
    ] = None,
    json: Json = False,
) -> int:
    """Take the next message that is due and write its body and a newline; exit code 1 if there is none.

    A message is acknowledged after it was written and flushed and, into a pipe, read; into a file of
    --output, after it is on disk. If that fails, or on Ctrl-C, it goes back to the queue.
    """
    if keep and follow:
        raise typer.BadParameter("--keep would be given the same messages again and again; leave out --follow")
    if output is not None and json:
        raise typer.BadParameter("give --output or --json, not both")
    if raw and json:
        raise typer.BadParameter("give --raw or --json, not both")
    wait_s = timeout if timeout is not None else FOREVER_S if follow else 0.0
    form = _json if json else _raw if raw or output else _line
    done = lost = 0
    bars = progress(DownloadColumn(binary_units=True), show=output is not None)
    with Held() as held, _outlet(held, output) as out, open_any(queue) as q, bars as bar:
        take = partial(q.get_many, wait=wait_s, lease=lease, type=type or None, key=key or None)
        while follow or done < count:
            most = batch if follow else min(batch, count - done)
            found = held.interruptible(take, most)
            if not found:
                break
            Writing(out, form, found, bar).write()
            done += len(found)
            if not keep:  # what is kept goes back when the queue is closed
                lost += _acknowledge(q, found)
        if not done and not follow:
            raise QueueEmpty(q.name)
    return NOTHING if lost else OK


@contextlib.contextmanager
def _outlet(held: Held, output: Path | None) -> Iterator[Outlet | FileOutlet]:
    if output is None:
        yield Outlet(held)
        return
    out = FileOutlet(held, output)
    try:
        yield out
    finally:
        out.close()


class Writing:
    """Messages that are written. Large bodies go piece by piece, and are never in memory as a whole."""

    def __init__(
        self, out: Outlet | FileOutlet, form: Callable[[Message], bytes], found: list[Message], bar: Progress
    ) -> None:
        self._out = out
        self._form = form
        self._found = found
        self._bar = bar
        self._keep_leases = _Extension(found)
        self._at: Message | None = None

    def write(self) -> None:
        written = False
        try:
            task = self._bar.add_task("writing", total=sum(message.body_bytes for message in self._found))
            for portion in self._portions():
                self._out.write(portion)
                self._bar.update(task, advance=len(portion))
                self._keep_leases()
            self._bar.remove_task(task)
            written = True
            self._out.wait_until_read(self._keep_leases)
            self._out.keep()
        except BaseException as error:
            for message in reversed(self._found):
                with contextlib.suppress(LeaseLost):
                    if written and self._out.unread_bytes() == 0:
                        message.ack()  # read in the moment in which we were interrupted
                        self._out.keep()
                    else:
                        message.release(delay=self._delay_s(message, error))
            raise

    def _delay_s(self, message: Message, error: BaseException) -> float | None:
        """A damaged one comes back after a lease's time, as it does when ``get`` finds the damage."""
        return self._keep_leases.span_s if isinstance(error, Corrupt) and message is self._at else None

    def _portions(self) -> Iterator[bytes]:
        small: list[bytes] = []
        for message in self._found:
            self._at = message
            if message.body_bytes <= WHOLE_BYTES_MAX or self._form is _json:
                small.append(self._form(message))
                continue
            yield b"".join(small)
            small = [b"" if self._form is _raw else b"\n"]
            with message.open() as body:
                while piece := body.read(PIECE_BYTES):
                    yield piece
        yield b"".join(small)


class _Extension:
    """Keeps the leases of messages that wait in a pipe."""

    def __init__(self, found: list[Message]) -> None:
        self._found = found
        self.span_s = max((found[0].lease_us - found[0].last_attempt_us) / 1e6, 0.001)
        self._next_s = time.monotonic() + self.span_s / 3

    def __call__(self) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self.span_s / 3
            for message in self._found:
                with contextlib.suppress(LeaseLost):  # said when it is acknowledged
                    message.extend(self.span_s)


def _acknowledge(queue: penstock.TimeQueue, found: list[Message]) -> int:
    """1 if a lease ended before, which is said and is no end."""
    try:
        queue.ack_many(found)
    except LeaseLost as error:
        complain(f"{error}: writing it took longer than its lease; it will be delivered again")
        return 1
    return 0


def _raw(message: Message) -> bytes:
    return message.data


def _line(message: Message) -> bytes:
    return message.data + b"\n"


def _json(message: Message) -> bytes:
    return dumps(describe(message)).encode() + b"\n"
