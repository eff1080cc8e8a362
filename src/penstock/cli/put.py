"""``penstock put``: put one message, or one for each line."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import DownloadColumn, TextColumn

import penstock
from penstock.cli.exits import USAGE, Failure, Terminated, code_of, line_of
from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import complain, progress, say, say_json
from penstock.cli.signals import Held
from penstock.cli.values import Durability, Kind, headers, moment, span_s

LINES_A_BATCH_MAX = 1000  # past this a batch gains nothing and delays the receivers
BATCH_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 18
ROOM_SHARE = 8  # a batch takes at most this part of the queue, so that it finds room while others receive

EXAMPLES = examples(
    "penstock put orders hello",
    "penstock put orders --as json '{\"order\": 7}' --type order --key example.com --header a=b",
    "penstock put wakeups 'call room 12' --deliver-at 2030-01-02T07:00:00+01:00",
    "penstock put orders --file order.xml --delay 5m --priority 3",
    "penstock put orders 'order 7' --dedup-id order-7 --ttl 2h --max-attempts 3",
    "date | penstock put orders -",
    "tar c photos | penstock put albums --file -",
    "penstock put orders --lines --file orders.txt",
    "tail -f app.log | penstock put logs --lines --timeout 1h",
)


def put(
    queue: QueuePath,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The body; - reads it from standard input.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Take the body (or the lines) from this file; - is standard input.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="One message for each line of standard input or --file.")
    ] = False,
    kind: Annotated[Kind, typer.Option("--as", help="What receivers get as the body.")] = Kind.bytes,
    deliver_at: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Not before: ISO 8601 with a zone, or epoch seconds."),
    ] = None,
    delay: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Not before this time has passed: 30s, 5m, 2h.")
    ] = None,
    priority: Annotated[int, typer.Option(min=0, max=15, help="Higher is delivered first.")] = 0,
    type: Annotated[str | None, typer.Option(help="The message's type.")] = None,
    key: Annotated[str | None, typer.Option(help="The message's key, such as a destination.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header (repeat).")] = None,
    ttl: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Not after this time has passed: 30s, 5m, 2h.")
    ] = None,
    expires_at: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="Not from then on, as --deliver-at.")
    ] = None,
    dedup_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Store once: if it was put before, print the id of that message.")
    ] = None,
    dedup_window: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="How long that is remembered.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1, help="Other than the queue's own.")] = None,
    backoff: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Other than the queue's own.")
    ] = None,
    lease: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Other than the queue's own.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=span_s, metavar="TIME", help="Wait so long for room in a full queue.")
    ] = None,
    durability: Annotated[Durability | None, typer.Option(help="Other than the queue's own.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="With --lines: print every id.")] = False,
    json: Json = False,
) -> int:
    """Put a message and print its id, once it is confirmed.

    With --lines, lines go in batches as they arrive. When a queue is full, the error says how many lines were put.
    """
    _check(body, file, lines, ids, deliver_at, delay)
    options: dict[str, Any] = {
        "deliver_at": deliver_at,
        "delay": delay,
        "priority": priority,
        "type": type,
        "key": key,
        "headers": headers(header),
        "ttl": ttl,
        "expires_at": expires_at,
        "dedup_id": dedup_id,
        "dedup_window": dedup_window,
        "max_attempts": max_attempts,
        "backoff": backoff,
        "lease": lease,
        "timeout": timeout,
        "durability": durability.value if durability else None,
    }
    with open_any(queue) as q:
        if lines:
            with _source(file) as (stream, total):
                return Lines(q, kind, options, ids=ids, json=json).put(stream, total)
        if kind is Kind.bytes and (file is not None or body == "-"):
            message_id = _put_file(q, file, options)
        else:
            message_id = q.put(_value(_body(body, file), kind), **options)
    if json:
        say_json({"id": message_id})
    else:
        say(message_id)
    return 0


def _check(
    body: str | None, file: Path | None, lines: bool, ids: bool, deliver_at: datetime | None, delay: float | None
) -> None:
    if deliver_at is not None and delay is not None:
        raise typer.BadParameter("give --deliver-at or --delay, not both")
    if ids and not lines:
        raise typer.BadParameter("--ids goes with --lines")
    if lines:
        if body not in (None, "-"):
            raise typer.BadParameter("--lines reads standard input or --file; leave BODY out")
        if body == "-" and file is not None:
            raise typer.BadParameter("give - or --file, not both")
    elif (body is None) == (file is None):
        raise typer.BadParameter("give one of BODY, - for standard input, and --file; or --lines")


class _source:
    """The stream to read lines from, with its size where that is known."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._opened: BinaryIO | None = None

    def __enter__(self) -> tuple[BinaryIO, int | None]:
        if self._file is None or str(self._file) == "-":
            return _stdin(), None
        self._opened = open(self._file, "rb")
        return self._opened, os.fstat(self._opened.fileno()).st_size or None

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise Failure("standard input is closed", USAGE)
    return sys.stdin.buffer


def _put_file(queue: penstock.TimeQueue, file: Path | None, options: dict[str, Any]) -> str:
    """A file, or all of standard input, without having it in memory."""
    with progress(DownloadColumn(binary_units=True)) as bar:
        task = bar.add_task("putting", total=None)

        def show(done_bytes: int, total_bytes: int | None) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes)

        source = file if file is not None and str(file) != "-" else _stdin()
        return queue.put_file(source, progress=show, **options)


def _body(body: str | None, file: Path | None) -> bytes:
    if file is not None and str(file) != "-":
        return file.read_bytes()
    if file is not None or body == "-":
        return _stdin().read()
    return os.fsencode(body or "")


def _value(data: bytes, kind: Kind) -> Any:
    try:
        if kind is Kind.json:
            return jsonlib.loads(data)
        if kind is Kind.text:
            return data.decode()
    except (ValueError, RecursionError) as error:
        raise penstock.Misuse(f"the body is not {kind.value}: {error}") from None
    return data


def batches(read: Callable[[], bytes], *, lines_max: int, bytes_max: int) -> Iterator[list[bytes]]:
    """Lines as they arrive, a batch for what was there: a slow source is not kept waiting for a full one.

    >>> pieces = iter([b"a\\nb", b"c\\n\\nd", b""])
    >>> list(batches(lambda: next(pieces), lines_max=2, bytes_max=100))
    [[b'a'], [b'bc', b''], [b'd']]
    """
    begun: list[bytes] = []  # pieces of a line whose end has not come
    while piece := read():
        first, *more = piece.split(b"\n")
        begun.append(first)
        if not more:
            continue
        whole = [b"".join(begun), *more[:-1]]
        begun = [more[-1]]
        yield from _portions(whole, lines_max, bytes_max)
    if last := b"".join(begun):
        yield [last]


def _portions(lines: list[bytes], lines_max: int, bytes_max: int) -> Iterator[list[bytes]]:
    portion: list[bytes] = []
    size = 0
    for line in lines:
        if portion and (len(portion) >= lines_max or size + len(line) > bytes_max):
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += len(line)
    if portion:
        yield portion


class Lines:
    """Puts the lines of a stream and knows how many are in the queue, whatever ends it."""

    def __init__(
        self, queue: penstock.TimeQueue, kind: Kind, options: dict[str, Any], *, ids: bool, json: bool
    ) -> None:
        self._queue = queue
        self._kind = kind
        self._timeout: float | None = options["timeout"]
        self._options = {name: value for name, value in options.items() if name != "timeout"}
        self._ids = ids
        self._json = json
        self._done = 0

    def put(self, stream: BinaryIO, total: int | None) -> int:
        stats = self._queue.stats()
        lines_max = max(1, min(LINES_A_BATCH_MAX, stats.slots // ROOM_SHARE))
        bytes_max = min(BATCH_BYTES_MAX, stats.data_bytes // ROOM_SHARE)
        read1: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        try:
            with progress(TextColumn("{task.fields[lines]} lines"), DownloadColumn(binary_units=True)) as bar:
                task = bar.add_task("putting", total=total, lines=0)
                for batch in batches(lambda: read1(READ_BYTES), lines_max=lines_max, bytes_max=bytes_max):
                    self._put(batch)
                    bar.update(task, advance=sum(map(len, batch)) + len(batch), lines=self._done)
        except (penstock.PenstockError, Failure, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise Failure(f"{line_of(error)}; {self._done} lines were put before this", code_of(error)) from error
        except (KeyboardInterrupt, Terminated):
            complain(f"interrupted; {self._done} lines were put")
            raise
        finally:
            if self._json and not self._ids:
                say_json({"put": self._done})
        if not self._json and not self._ids:
            say(f"{self._done} messages put")
        return 0

    def _put(self, lines: list[bytes]) -> None:
        values = []
        for line in lines:
            try:
                values.append(_value(line, self._kind))
            except penstock.Misuse as error:
                self._put_values(values)
                raise Failure(f"line {self._done + 1}: {line_of(error)}", USAGE) from error
        self._put_values(values)

    def _put_values(self, values: list[Any]) -> None:
        """All of them; if there is no room for all, as many as there is room for, and then one by one as there is."""
        if not values:
            return
        try:
            with Held():  # or the number of lines that were put would be a guess
                found = self._queue.put_many(values, **self._options)
                self._done += len(found)
        except penstock.QueueFull:
            if len(values) == 1:
                if self._timeout is None:
                    raise
                found = self._queue.put_many(values, timeout=self._timeout, **self._options)
                self._done += 1
            else:
                middle = len(values) // 2
                self._put_values(values[:middle])
                self._put_values(values[middle:])
                return
        self._show(found)

    def _show(self, found: penstock.MessageIds) -> None:
        if not self._ids:
            return
        for message_id in found:
            if self._json:
                say_json({"id": message_id})
            else:
                say(message_id)
