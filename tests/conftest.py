"""Fixtures. Every queue that a test made through them is checked when the test ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store.files import Clock
from penstock.timequeue import check_queue
from penstock.timequeue.answers import REPLIES
from tests.thoroughness import FIRST, STEP

WALL_START_S = 1_700_000_000
BOOT_START_S = 1_000  # boot and wall time differ, so that a mix-up of the two shows

# Small, so that making a queue takes a few milliseconds; relaxed, since no test here cuts the power.
SMALL = {"slots": 64, "data_bytes": 64 << 10, "durability": "relaxed"}


os.environ.pop("PYTHONUNBUFFERED", None)  # as users start programs: nobody sees what was not flushed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "damages: the test damages its queue; it is not checked at the end")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"{STEP}={FIRST} kills at the same steps, and searches from the same places")


class SimulatedClock(Clock):
    """Time that passes only when it is told to. The wall clock can be set; boot time, as in life, only advances."""

    def __init__(self) -> None:
        self._wall_us = WALL_START_S * 1_000_000
        self._boot_us = BOOT_START_S * 1_000_000

    def wall_us(self) -> int:
        return self._wall_us

    def boot_us(self) -> int:
        return self._boot_us

    @property
    def now_s(self) -> float:
        return self._wall_us / 1e6

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._wall_us += round(seconds * 1e6)
        self._boot_us += round(seconds * 1e6)

    def set_wall(self, seconds: float) -> None:
        """Somebody sets the clock: to ``seconds`` since 1970."""
        self._wall_us = round(seconds * 1e6)


class Queues:
    """Makes and opens small queues, and closes and checks them at the end."""

    def __init__(self, folder: Path, clock: SimulatedClock | None) -> None:
        self._folder = folder
        self._clock = clock
        self._opened: list[penstock.TimeQueue] = []
        self._paths: list[Path] = []

    def __call__(self, name: str = "queue", **options: Any) -> penstock.TimeQueue:
        """A new queue. With the ``clock`` fixture it lives in simulated time."""
        path = self._folder / name
        self._paths.append(path)
        options = {**SMALL, **options}
        options.setdefault("clock", self._clock)
        return self._keep(penstock.create(path, **options))

    def managed(self, name: str, **options: Any) -> Any:
        """A new queue, opened through a manager of the folder."""
        options = {**SMALL, **options}
        options["depth"] = options.pop("slots")
        clock, busy_s = options.pop("clock", self._clock), options.pop("busy_s", None)
        if "dead_letter" in options:
            options["dead_letter"] = str(options["dead_letter"])
        manager = penstock.QueueManager(self._folder, **({} if busy_s is None else {"busy_s": busy_s}))
        manager.create(name, **options)
        self._paths.append(self._folder / name)
        return self._keep(manager.open(name, clock=clock))  # type: ignore[arg-type]

    def macro(self, name: str, **options: Any) -> Any:
        """A new macro queue of two queues. Where a limit is asked for, it is meant for the whole: only the first one is
        active then."""
        limited = options.keys() & {"slots", "data_bytes", "dedup_entries"}
        options = {**SMALL, **options}
        options["depth"] = options.pop("slots")
        clock, busy_s = options.pop("clock", self._clock), options.pop("busy_s", None)
        if "dead_letter" in options:
            options["dead_letter"] = str(options["dead_letter"])
        manager = penstock.QueueManager(self._folder, **({} if busy_s is None else {"busy_s": busy_s}))
        members = [f"{name}-{letter}" for letter in "ab"]
        for member in members:
            manager.create(member, **options)
            self._paths.append(self._folder / member)
        for member in members[1:] if limited else []:
            manager.deactivate(member)
        manager.create_macro(name, members)
        busy = {} if busy_s is None else {"busy_s": busy_s}
        return self._keep(penstock.MacroQueue(self._folder / name, clock=clock, **busy))  # type: ignore[arg-type]

    def macro_peer(self, queue: Any) -> Any:
        return self._keep(penstock.MacroQueue(queue.path, clock=self._clock))  # type: ignore[arg-type]

    def manage(self, queue: Any) -> Any:
        """One more client of it, through another manager."""
        return self._keep(penstock.QueueManager(self._folder).open(queue.called, clock=self._clock))  # type: ignore[arg-type]

    def open(self, queue: penstock.TimeQueue | Path, **options: Any) -> penstock.TimeQueue:
        """One more client of a queue."""
        path = queue if isinstance(queue, Path) else queue.path
        if path not in self._paths:
            self._paths.append(path)
        options.setdefault("clock", self._clock)
        return self._keep(penstock.open(path, **options))

    def die(self, queue: penstock.TimeQueue) -> None:
        """As when the process of this client is killed: its descriptors are closed, and that is all."""
        client = queue._client
        assert client is not None
        client.forget()
        queue._client = None
        queue._closed = True

    def _keep(self, queue: penstock.TimeQueue) -> penstock.TimeQueue:
        self._opened.append(queue)
        return queue

    def close(self) -> None:
        for queue in self._opened:
            queue.close()

    def check(self) -> None:
        for path in self._paths:
            assert_whole(path)
            if (path / REPLIES).exists():
                assert_whole(path / REPLIES)


def assert_whole(path: Path) -> None:
    findings = check_queue(path)
    assert not findings, "\n".join(f"{f.path}: {f.offset}: {f.what}" for f in findings)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Where a queue may be made. If there is one at the end, it is checked."""
    where = tmp_path / "queue"
    yield where
    if (where / "queue.json").exists() and not _damaged(request):
        assert_whole(where)


@pytest.fixture
def queue(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Queues]:
    """A factory of small queues: ``queue(slots=4)`` makes one, ``queue.open(q)`` is another client of it."""
    clock = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    queues = Queues(tmp_path, clock)
    yield queues
    if _damaged(request):
        with contextlib.suppress(penstock.PenstockError):
            queues.close()
        return
    try:
        queues.check()  # with its clients at work, as `penstock check` finds it
    finally:
        queues.close()
    queues.check()


def _damaged(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("damages") is not None
