"""``penstock tail``: what is put into a queue, as it comes, without taking it."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import Corrupt, Message
from penstock.cli.exits import NO_QUEUE, OK, Failure, line_of
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, OnlyKeys, OnlyTypes, QueuePath, examples
from penstock.cli.output import complain, describe, flush, pause, preview, say, say_json
from penstock.cli.values import span_s
from penstock.timequeue.following import Following

EXAMPLES = examples(
    "penstock tail orders",
    "penstock tail orders --lines 100 --no-follow",
    "penstock tail orders --type invoice --type reminder --key customer-7",
    "penstock tail orders --lines 0 --json | jq .body",
)


def tail(
    queue: QueuePath,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with the last so many messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what is put from now on.")] = True,
    type: OnlyTypes = None,
    key: OnlyKeys = None,
    interval: Annotated[
        float, typer.Option(parser=span_s, metavar="TIME", help="How often to look.", show_default="200ms")
    ] = 0.2,
    json: Json = False,
) -> int:
    """Show the messages that were put last, and those that are put from now on, in the order in which they were put.

    Nothing is taken, and receivers do not notice. What is put and acknowledged between two looks is not seen. Ends with
    Ctrl-C, or when whoever reads the output goes away.
    """
    if interval <= 0:
        raise typer.BadParameter("the interval must be more than 0")
    show = _show_json if json else _show_line
    with open_queue(queue) as q:
        following = Following(q, types=tuple(type or ()), keys=tuple(key or ()), damaged=_complain_of)
        for message in following.newest(lines):
            show(message)
        while follow:
            flush()
            pause(interval)
            if not following.is_there():
                raise Failure(f"{q.name}: the queue is not there any more", NO_QUEUE)
            for message in following.news():
                show(message)
    return OK


def _complain_of(error: Corrupt) -> None:
    complain(line_of(error))


def _show_json(message: Message) -> None:
    say_json(describe(message))


def _show_line(message: Message) -> None:
    put_at = message.enqueued_at.astimezone().isoformat(sep=" ", timespec="milliseconds")
    about = [
        f"{name}={preview(value.encode())}" for name, value in (("type", message.type), ("key", message.key)) if value
    ]
    say("  ".join([put_at, message.id, *about, f"{len(message.data)} B", preview(message.data)]))
