"""``penstock syncer``: the synchronization component, a process that performs the syncs of queues for their clients."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from penstock.cli.exits import OK, line_of
from penstock.cli.ls import queues
from penstock.cli.opening import is_macro
from penstock.cli.options import Json, examples
from penstock.cli.output import complain, flush, say_json
from penstock.cli.signals import asked_to_end, code_of
from penstock.cli.values import count, size_bytes, span_s
from penstock.timequeue.syncasking import CONFIRM_S
from penstock.timequeue.syncbatches import Limits
from penstock.timequeue.syncservice import SyncService

EXAMPLES = examples(
    "penstock syncer orders invoices",
    "penstock syncer /var/lib/queues --json",
    "penstock syncer orders --gather 5ms --idle 1ms --batch-requests 256",
)

GATHER_S_MAX = CONFIRM_S / 2  # clients that wait for longer than CONFIRM_S help themselves, and a sync takes its time

_DEFAULT = Limits()


class _Log:
    """A line for each event; of threads, one at a time."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._mutex = threading.Lock()

    def __call__(self, event: str, path: Path, said: str | Exception, /) -> None:
        text = line_of(said) if isinstance(said, Exception) else said
        with self._mutex:
            if self._json:
                with contextlib.suppress(OSError):  # nobody listens, or a disk is full: it serves all the same
                    say_json({"event": event, "queue": str(path), "text": text})
                    flush()
            else:
                complain(text if os.path.realpath(path) in text else f"{path}: {text}")


def _open_many_files() -> None:
    """Each client that waits is answered by two pipes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _limits(
    *, batch_bytes: int, batch_requests: int, gather: float | None, idle: float | None, gap: int, automatic: bool | None
) -> Limits:
    """Whoever gives times has them kept, unless he wants them tuned all the same."""
    for name, seconds in (("--gather", gather), ("--idle", idle)):
        if seconds is not None and not 0 <= seconds <= GATHER_S_MAX:
            raise typer.BadParameter(f"{name}: from 0 to {GATHER_S_MAX:g} s: clients that wait longer do without")
    if batch_bytes < 1 or batch_requests < 1:
        raise typer.BadParameter("--batch-bytes and --batch-requests: at least 1")
    return Limits(
        batch_bytes_max=batch_bytes,
        batch_requests_max=batch_requests,
        gather_us=_DEFAULT.gather_us if gather is None else round(gather * 1e6),
        idle_us=_DEFAULT.idle_us if idle is None else round(idle * 1e6),
        gap_bytes=gap,
        automatic=(gather is None and idle is None) if automatic is None else automatic,
    )


def syncer(
    places: Annotated[
        list[Path], typer.Argument(metavar="QUEUE…|ROOT", help="Queues, or folders with queues.", show_default=False)
    ],
    batch_bytes: Annotated[
        int, typer.Option(parser=size_bytes, metavar="SIZE", help="Most bytes a batch.", show_default="64M")
    ] = _DEFAULT.batch_bytes_max,
    batch_requests: Annotated[
        int, typer.Option(parser=count, metavar="COUNT", help="Most requests a batch.")
    ] = _DEFAULT.batch_requests_max,
    gather: Annotated[
        float | None,
        typer.Option(parser=span_s, metavar="TIME", help="Longest gathering time.", show_default="2ms"),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            parser=span_s,
            metavar="TIME",
            help="Longest time without a new request.",
            show_default="500us, or automatic",
        ),
    ] = None,
    gap: Annotated[
        int,
        typer.Option(
            parser=size_bytes, metavar="SIZE", help="Largest gap that counts as contiguous.", show_default="16M"
        ),
    ] = _DEFAULT.gap_bytes,
    automatic: Annotated[
        bool | None,
        typer.Option(
            help="Tune it to the load: gather as long as requests keep coming, up to --gather.",
            show_default="unless --gather or --idle is given",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Perform the syncs of queues for their clients, many requests at a time.

    Clients of a queue find it by themselves, and do without when it ends. One of them serves a queue: a second is
    refused. Below a folder, queues that come later are served too. Ends with Ctrl-C or SIGTERM.
    """
    limits = _limits(
        batch_bytes=batch_bytes,
        batch_requests=batch_requests,
        gather=gather,
        idle=idle,
        gap=gap,
        automatic=automatic,
    )
    _open_many_files()
    service = SyncService(lambda: _found(places), limits, _Log(json))
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        service.stop()

    before = {number: signal.signal(number, end) for number in asked_to_end()}
    try:
        service.run(insist=all(not _is_folder(place) for place in places))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not came:
        return OK
    return code_of(came[0])


def _is_folder(place: Path) -> bool:
    """Of queues, not of one."""
    return place.is_dir() and not (place / "queue.json").exists() and not is_macro(place)


def _found(places: list[Path]) -> Iterator[Path]:
    """Of a folder not its macro queues: there is nothing to sync in them but their members, which are below it too."""
    seen = set()
    for place in places:
        below = (path for path in queues(place) if not is_macro(path)) if _is_folder(place) else iter((place,))
        for path in below:
            known = os.path.realpath(path)
            if known not in seen:
                seen.add(known)
                yield path
