"""``penstock get``: take messages out. Acknowledged when they are written and flushed, given back when that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from json import dumps
from typing import Annotated

import typer

import penstock
from penstock import LeaseLost, Message, QueueEmpty
from penstock.cli.exits import NOTHING, OK
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import Outlet, complain, describe
from penstock.cli.signals import Held
from penstock.cli.values import span_s

FOREVER_S = 1e9

EXAMPLES = examples(
    "penstock get orders",
    "penstock get orders --timeout 10s --json",
    "penstock get orders --count 100 --batch 100 > orders.txt",
    'penstock get orders --follow | while read -r line; do echo "$line"; done',
    "penstock get orders --follow --timeout 0 > everything-that-is-due.txt",
    "penstock get orders --keep",
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
    raw: Annotated[bool, typer.Option("--raw", help="The bytes of the bodies alone, no newline after each.")] = False,
    json: Json = False,
) -> int:
    """Take the next message that is due and write its body and a newline; exit code 1 if there is none.

    A message is acknowledged after it was written and flushed and, into a pipe, read. If that fails, or on Ctrl-C, it
    goes back to the queue.
    """
    if keep and follow:
        raise typer.BadParameter("--keep would be given the same messages again and again; leave out --follow")
    if raw and json:
        raise typer.BadParameter("give --raw or --json, not both")
    wait_s = timeout if timeout is not None else FOREVER_S if follow else 0.0
    form = _json if json else _raw if raw else _line
    done = lost = 0
    with Held() as held:
        out = Outlet(held)
        with open_queue(queue) as q:
            while follow or done < count:
                most = batch if follow else min(batch, count - done)
                found = held.interruptible(q.get_many, most, wait=wait_s, lease=lease)
                if not found:
                    break
                _write(out, form, found)
                done += len(found)
                if not keep:  # what is kept goes back when the queue is closed
                    lost += _acknowledge(q, found)
            if not done and not follow:
                raise QueueEmpty(q.name)
    return NOTHING if lost else OK


def _write(out: Outlet, form: Callable[[Message], bytes], found: list[Message]) -> None:
    written = False
    try:
        out.write(b"".join(map(form, found)))
        written = True
        out.wait_until_read(_Extension(found))
    except BaseException:
        for message in reversed(found):
            with contextlib.suppress(LeaseLost):
                if written and out.unread_bytes() == 0:
                    message.ack()  # read in the moment in which we were interrupted
                else:
                    message.release()
        raise


class _Extension:
    """Keeps the leases of messages that wait in a pipe."""

    def __init__(self, found: list[Message]) -> None:
        self._found = found
        self._span_s = max((found[0].lease_us - found[0].last_attempt_us) / 1e6, 0.001)
        self._next_s = time.monotonic() + self._span_s / 3

    def __call__(self) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._span_s / 3
            for message in self._found:
                with contextlib.suppress(LeaseLost):  # said when it is acknowledged
                    message.extend(self._span_s)


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
