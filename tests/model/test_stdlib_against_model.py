"""``penstock.stdlib.Queue`` in several processes, which come, go and die, against a plain model: a list of items.

Each queue object stands for a process: it has a client of its own, and what it has got is in its own hand.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock import stdlib
from tests.conftest import assert_whole
from tests.model.test_queue_against_model import MEMORY
from tests.thoroughness import IN_FULL

MAXSIZE = 4
PROCESSES_MAX = 3
SLOTS = 12  # of which some are in hand: the directory is full before maxsize is reached
WHATEVER = st.sampled_from([b"bytes", "text", None, 7, {"a": [1]}, ("a", "tuple"), {1, 2}, b"x" * 5000])


@dataclass(eq=False)
class Item:
    value: Any
    number: int


@dataclass(eq=False)
class Process:
    queue: stdlib.Queue[Any]
    removes: bool  # done_by="get"
    hand: list[Item] = field(default_factory=list)
    removed: int = 0  # for these task_done may be called and means nothing


class StdlibAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-", dir=MEMORY))
        self.waiting: list[Item] = []
        self.processes: list[Process] = []
        self.shut = False
        self.numbers = 0
        self._open(False)

    def _open(self, removes: bool) -> None:
        if not self.processes:
            self.shut = False  # nobody was left: a new session
        queue = stdlib.Queue[Any](
            self.folder / "queue",
            MAXSIZE,
            slots=SLOTS,
            data_bytes=64 << 10,
            done_by="get" if removes else "task_done",
        )
        self.processes.append(Process(queue, removes))

    def _process(self, pick: int) -> Process:
        return self.processes[pick % len(self.processes)]

    def _give_back(self, process: Process) -> None:
        """To their old places."""
        self.waiting = sorted([*self.waiting, *process.hand], key=lambda item: item.number)
        self.processes.remove(process)

    def _unfinished(self) -> int:
        return len(self.waiting) + sum(len(process.hand) for process in self.processes)

    # ------------------------------------------------------------ items

    @rule(pick=st.integers(0, 5), value=WHATEVER, block=st.booleans())
    def put(self, pick: int, value: Any, block: bool) -> None:
        expected: type[Exception] | None = None
        if self.shut:
            expected = stdlib.ShutDown
        elif len(self.waiting) >= MAXSIZE or self._unfinished() >= SLOTS:
            expected = stdlib.Full
        try:
            self._process(pick).queue.put(value, block, timeout=0.001)
        except (stdlib.ShutDown, stdlib.Full) as error:
            assert expected is not None and isinstance(error, expected)
            return
        assert expected is None
        self.numbers += 1
        self.waiting.append(Item(value, self.numbers))

    @rule(pick=st.integers(0, 5), block=st.booleans())
    def get(self, pick: int, block: bool) -> None:
        process = self._process(pick)
        try:
            value = process.queue.get(block, timeout=0.001)
        except stdlib.ShutDown:
            assert self.shut and not self.waiting
            return
        except stdlib.Empty:
            assert not self.shut and not self.waiting
            return
        item = self.waiting.pop(0)
        assert value == item.value and type(value) is type(item.value)
        if process.removes:
            process.removed += 1
        else:
            process.hand.append(item)

    @rule(pick=st.integers(0, 5))
    def task_done(self, pick: int) -> None:
        process = self._process(pick)
        allowed = process.removed if process.removes else len(process.hand)
        try:
            process.queue.task_done()
        except ValueError:
            assert not allowed
            return
        assert allowed
        if process.removes:
            process.removed -= 1
        else:
            process.hand.pop(0)

    @precondition(lambda self: not self._unfinished())
    @rule(pick=st.integers(0, 5))
    def join(self, pick: int) -> None:
        self._process(pick).queue.join()

    # ------------------------------------------------------------ processes

    @precondition(lambda self: len(self.processes) < PROCESSES_MAX)
    @rule(removes=st.booleans())
    def begin(self, removes: bool) -> None:
        self._open(removes)

    @rule(pick=st.integers(0, 5), immediate=st.booleans())
    def shut_down(self, pick: int, immediate: bool) -> None:
        self._process(pick).queue.shutdown(immediate)
        self.shut = True
        if immediate:
            self.waiting.clear()

    @rule(pick=st.integers(0, 5), removes=st.booleans())
    def close(self, pick: int, removes: bool) -> None:
        process = self._process(pick)
        process.queue.close()
        self._give_back(process)
        if not self.processes:
            self._open(removes)

    @rule(pick=st.integers(0, 5), removes=st.booleans())
    def die(self, pick: int, removes: bool) -> None:
        """As when it is killed: its descriptors are closed, and that is all. Who comes by gives back what it had."""
        process = self._process(pick)
        queue = process.queue._queue
        assert queue._client is not None
        queue._client.forget()
        queue._client, queue._closed = None, True
        process.queue._session.close()
        self._give_back(process)
        if not self.processes:
            self._open(removes)
        client = self.processes[0].queue._queue._mine()
        client.turn(client.return_from_dead)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def all_processes_see_the_same(self) -> None:
        for process in self.processes:
            queue = process.queue
            assert (queue.qsize(), queue.unfinished_tasks) == (len(self.waiting), self._unfinished())
            assert (queue.empty(), queue.full()) == (not self.waiting, len(self.waiting) >= MAXSIZE)
            assert queue.is_shutdown == self.shut

    def teardown(self) -> None:
        try:
            for process in self.processes:
                process.queue.close()
            self.waiting = sorted(
                [*self.waiting, *(item for process in self.processes for item in process.hand)],
                key=lambda item: item.number,
            )
            with stdlib.Queue[Any](self.folder / "queue") as queue:
                found = [queue.get_nowait() for _ in self.waiting]
                assert found == [item.value for item in self.waiting] and queue.empty()
                for _ in found:
                    queue.task_done()
                queue.join()
            assert_whole(self.folder / "queue")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


TestStdlib = pytest.mark.timeout(400)(StdlibAgainstModel.TestCase)
TestStdlib.settings = settings(
    max_examples=60 if IN_FULL else 30,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
