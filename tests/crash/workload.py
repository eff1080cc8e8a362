"""Random work of a few clients on a small queue, recorded: the log of its disk and a ledger of what was done.

Everything follows from the seed. The clients are in one process; so that their calls still overlap, another one's call
may run in the middle of a call, before any of its effects that comes without the lock.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import random
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.files import KERNEL, LOCK, body_name
from tests.conftest import SimulatedClock
from tests.crash.ledger import NEVER, Ledger, Sent, Span, found, make_body
from tests.crash.storage import Disk
from tests.pipes import Pipe
from tests.snapshot import Snapshot

KILLED = -1  # instead of an error number

FAR_S = 4_000_000_000  # long after any simulated time
NUMBERS_LEFT = 64 + 5  # before the limit must be raised on disk, in some of the runs; the kernel keeps 64 spare
OPTIONS: dict[str, Any] = {"index_sync_ms": 0}  # nothing happens in the background

TEMPLATES: tuple[dict[str, Any], ...] = (
    {"slots": 24, "data_bytes": 16 << 10, "spill_bytes": 1500},
    {"slots": 40, "data_bytes": 32 << 10, "spill_bytes": 3000},
    {"slots": 32, "data_bytes": 24 << 10, "spill_bytes": 900},
    {"slots": 40, "data_bytes": 64 << 10, "spill_bytes": 6000},
)


class Template:
    """A new queue in a directory, put back to where it began before each run: its files stay the same files."""

    def __init__(self, folder: Path, which: int) -> None:
        self.path = folder / f"queue-{which}"
        self._create(folder, which)
        self._snapshot = Snapshot(self.path)

    def _create(self, folder: Path, which: int) -> None:
        """The third has two data files."""
        aside = [folder / "aside" / name for name in "ab"] if which == 2 else []
        penstock.create(self.path, data_dirs=aside, clock=SimulatedClock(), **OPTIONS, **TEMPLATES[which]).close()

    def reset(self, *, late: bool) -> None:
        """``late``: few numbers are left that may be given without raising the limit first."""
        self._snapshot.put_back()
        if late:
            with open(self.path / KERNEL, "r+b") as file:
                kernel = memoryview(bytearray(file.read(L.PAGE_BYTES))).cast("Q")
                file.seek(L.H_NUMBER_NEXT * L.WORD_BYTES)
                file.write((kernel[L.H_NUMBER_SAFE] - NUMBERS_LEFT).to_bytes(L.WORD_BYTES, "little"))


def dedup_id(token: int) -> str:
    return f"token {token}"


class Killed(BaseException):
    """Ends a call as the end of its process would."""


class Workload:
    """Clients, their disk and their ledger."""

    how = ""  # single messages are put in this way, if it is said: "put", "file" or "pipe"

    def __init__(self, template: Template, seed: int, *, late: bool | None = None) -> None:
        self.path = path = template.path
        self.rng = random.Random(seed)
        chance = self.rng.random()
        template.reset(late=chance < 0.3 if late is None else late)
        self.clock = SimulatedClock()
        self.ledger = Ledger()
        self.disk = Disk(path)
        self.disk.between = self._between
        self._lock = os.open(path / LOCK, os.O_RDWR)
        self.queues: list[penstock.TimeQueue] = []
        self.held: list[tuple[penstock.TimeQueue, penstock.Message]] = []
        self._next_token = 1
        self._depth = 0
        self._overlap = self.rng.choice((0.0, 0.0, 0.1, 0.3))
        self._failing: tuple[str, int, int] | None = None  # kind of call, how many go well before, error number
        self._killed = False
        self._relaxed = self.rng.choice((0.0, 0.0, 0.2, 0.5, 1.0))
        self._quiet = self.rng.random() < 0.3  # never syncs the index
        usual = {
            self.put: 6,
            self.put_many: 4,
            self.put_failing: 1,
            self.put_killed: 1,
            self.get: 6,
            self.ack: 6,
            self.ack_many: 2,
            self.release: 2,
            self.extend: 1,
        }
        usual[self.kill_anywhere] = 1
        if not self._quiet:
            usual |= {self.cancel: 1, self.sync_index: 2, self.reopen: 1}
        # Each run has habits of its own: some put only batches, some release all they get.
        self._calls = {call: weight * self.rng.choice((0, 1, 1, 1, 3)) for call, weight in usual.items()}
        self._calls[self.put] += 1

    def run(self, steps: int) -> None:
        with self.disk:
            for _ in range(self.rng.randint(1, 3)):
                self.queues.append(self._open())
            for _ in range(steps):
                self.step()
            self.disk.now()

    def abandon(self) -> None:
        """As when the power goes: no client comes to an end of its own."""
        for queue in self.queues:
            abandon(queue)
        os.close(self._lock)
        self.disk.close()

    def _open(self) -> penstock.TimeQueue:
        return penstock.open(self.path, clock=self.clock, busy_s=1)

    # ------------------------------------------------------------ one step

    def step(self) -> None:
        self.clock.advance(self.rng.choice((0.000_001, 0.01, 1.0)))
        queue = self.rng.choice(self.queues)
        (call,) = self.rng.choices(list(self._calls), list(self._calls.values()))
        call(queue)

    def _between(self, kind: str, path: str) -> None:
        if self._killed:
            raise Killed
        if self._failing is not None and self._failing[0] == kind:
            _, left, code = self._failing
            self._failing = (kind, left - 1, code) if left else None
            if left == 0 and code == KILLED:
                self._killed = True
                raise Killed
            if left == 0:
                raise OSError(code, os.strerror(code), path)
        if kind == rig.LOCK:
            return
        chance = self._overlap / 5 if kind == rig.SYNC else self._overlap  # there the other waits for us in vain
        if self._depth or self._failing is not None or self.rng.random() >= chance:
            return
        if not self.queues or self._is_locked():
            return  # somebody is in a turn
        self._depth += 1
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.step()
        finally:
            self._depth -= 1

    def _is_locked(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return False

    def _span(self) -> Span:
        return Span(self.disk.now())

    # ------------------------------------------------------------ putting

    def message(self, queue: penstock.TimeQueue, durable: bool) -> Sent:
        rng = self.rng
        token = self._next_token
        self._next_token += 1
        size = rng.choice((0, 20, 100, 180, 300, 700, 1400, 2600))
        filling = rng.randbytes(size) if rng.random() < 0.8 else self._records(queue, token, size)
        options = {
            "priority": rng.choice((0, 0, 0, 1, 15)),
            "type": rng.choice((None, "order")),
            "key": rng.choice((None, "example.com")),
            "headers": rng.choice((None, {"a": "b", "c": "d" * rng.randrange(40)})),
        }
        if token % 3 == 0:
            options["dedup_id"] = dedup_id(token)
        sent = Sent(token, make_body(token, filling), options, durable, self._span())
        when = rng.choice(("now", "now", "delay", "far"))
        now_us = self.clock.wall_us()
        if when == "delay":
            options["delay"] = 2.5
            sent.deliver_us = (now_us + 2_500_000, now_us + 2_500_000)
        elif when == "far":
            options["deliver_at"] = FAR_S + token % 7
            sent.deliver_us = (options["deliver_at"] * 1_000_000,) * 2
        else:
            sent.deliver_us = (now_us, now_us)  # and until the put has returned
        return sent

    def _records(self, queue: penstock.TimeQueue, token: int, size: int) -> bytes:
        """Whole records of this queue, at the very place that they have: what is there goes on being there."""
        kernel = queue._mine().kernel
        cursor = kernel.get(L.H_CURSOR)
        unit = (kernel.field(cursor, L.S_PLACE) >> L.PLACE_SHIFT) + (kernel.field(cursor, L.S_PLACE) & L.PLACE_MASK)
        with open(self.disk.data[0], "rb") as file:
            file.seek((unit + 1) * L.UNIT_BYTES)
            records = file.read(size)
        before = L.UNIT_BYTES - L.RECORD_BYTES - len(b"<%d:" % token)
        return bytes(before) + records

    def _is_durable(self) -> bool:
        return self.rng.random() >= self._relaxed

    def put(self, queue: penstock.TimeQueue) -> None:
        self._put(queue, [self.message(queue, self._is_durable())], one=True)

    def put_many(self, queue: penstock.TimeQueue) -> None:
        durable = self._is_durable()
        self._put(queue, [self.message(queue, durable) for _ in range(self.rng.randint(2, 6))])

    def put_failing(self, queue: penstock.TimeQueue) -> None:
        """A put that finds a full disk, or a broken one, on its way. It may be over before."""
        kind, left = self.rng.choice(((rig.WRITE, 0), (rig.WRITE, 1), (rig.OPEN, 0), (rig.LOCK, 1), (rig.LOCK, 2)))
        self._failing = (kind, left, self.rng.choice((errno.ENOSPC, errno.EIO)))
        try:
            self.rng.choice((self.put, self.put_many))(queue)
        finally:
            self._failing = None

    def put_killed(self, queue: penstock.TimeQueue) -> None:
        """A process that dies in the middle of a put: whatever it tries then, it does not get to it."""
        if self._depth:
            return
        kind, left = self.rng.choice(((rig.WRITE, 0), (rig.SYNC, 0), (rig.SYNC, 1), (rig.LOCK, 1), (rig.LOCK, 2)))
        self.kill(queue, kind, left, self.rng.choice((self.put, self.put_many)))

    def kill(
        self, queue: penstock.TimeQueue, kind: str, left: int, call: Callable[[penstock.TimeQueue], object]
    ) -> None:
        """The client dies at the call of this kind that comes after ``left`` others; another takes its place."""
        self._failing = (kind, left, KILLED)
        known = set(self.ledger.sent)
        try:
            call(queue)
        except Killed:
            self._leave(queue)
            abandon(queue)
            self._killed = False
            self.queues.append(self._open())
            self._look_for(self.ledger.sent.keys() - known)
        finally:
            self._failing = None

    def kill_anywhere(self, queue: penstock.TimeQueue) -> None:
        """A process that dies between any two stores of a put; others tidy up after it."""
        if not self._depth:
            self.kill_between(queue, self.rng.random(), self.rng.choice((self.put, self.put, self.put_many)))

    def kill_between(
        self, queue: penstock.TimeQueue, part: float, call: Callable[[penstock.TimeQueue], object]
    ) -> None:
        """The client dies when so much of what the call does was done; another takes its place."""
        self._depth += 1  # nothing else meanwhile: all since is taken back
        begun = self.disk.now()
        known = set(self.ledger.sent)
        call(queue)
        self._depth -= 1
        at = begun + round(part * (self.disk.now() - begun))
        self._leave(queue)
        abandon(queue)
        self.disk.rewind(at)
        for token in self.ledger.sent.keys() - known:
            sent = self.ledger.sent[token]
            sent.put.done = NEVER
            sent.ok = False
        self.queues.append(self._open())
        self._look_for(self.ledger.sent.keys() - known)

    def _look_for(self, tokens: Set[int]) -> None:
        """Of a put whose process died: either it is there now, or it was given up."""
        here = {found(message).token: message for message in self.queues[-1].browse(state="all")}
        done = self.disk.now()
        for token in tokens:
            sent = self.ledger.sent[token]
            sent.put.done = done
            if token in here:
                sent.ok, sent.id = True, here[token].id
                sent.spilled = self.disk.had_body(body_name(here[token].number, here[token].slot))
                sent.durable = False  # nobody was told

    def _put_one(self, queue: penstock.TimeQueue, sent: Sent, durability: str) -> str:
        """Half of them are copied out of a file, or of a pipe, of which nobody knows how long it is."""
        how = self.how or self.rng.choice(("put", "put", "file", "pipe"))
        if how == "put":
            return queue.put(sent.body, durability=durability, **sent.options)
        source: Any = io.BytesIO(sent.body) if how == "file" else Pipe(sent.body)
        return queue.put_file(source, durability=durability, **sent.options)

    def _put(self, queue: penstock.TimeQueue, batch: list[Sent], *, one: bool = False) -> None:
        durability = "commit" if batch[0].durable else "relaxed"
        span = self._span()
        for sent in batch:
            sent.batch = batch
            sent.put = span
            self.ledger.sent[sent.token] = sent
        try:
            if one:
                ids: Sequence[str] = [self._put_one(queue, batch[0], durability)]
            else:
                drafts = [penstock.Draft(body=sent.body, **sent.options) for sent in batch]
                ids = queue.put_many(drafts, durability=durability)
        except (penstock.QueueFull, penstock.BodyTooLarge, OSError):
            ids = []
        span.done = self.disk.now()
        for sent, message_id in zip(batch, ids, strict=False):
            sent.ok = True
            sent.id = message_id
            slot, number = queue.parse_id(message_id)
            sent.spilled = self.disk.had_body(body_name(number, slot))
        for sent in batch:
            if not {"delay", "deliver_at"} & sent.options.keys():
                sent.deliver_us = (sent.deliver_us[0], self.clock.wall_us())

    # ------------------------------------------------------------ getting

    def get(self, queue: penstock.TimeQueue) -> None:
        begun = self.disk.now()
        for message in queue.get_many(self.rng.choice((1, 1, 2, 5)), lease=self.rng.choice((0.5, 60.0))):
            self.ledger.sent[found(message).token].delivered.append(begun)
            self.held.append((queue, message))

    def _pick(self, count: int) -> list[tuple[penstock.TimeQueue, penstock.Message]]:
        count = min(count, len(self.held))
        return [self.held.pop(self.rng.randrange(len(self.held))) for _ in range(count)]

    def _remove(self, messages: Sequence[penstock.Message], call: Callable[[], object], *, final: bool = False) -> None:
        span = self._span()
        span.final = final
        spans = [self.ledger.sent[found(message).token].removed for message in messages]
        for spans_of_one in spans:
            spans_of_one.append(span)
        try:
            call()
        except penstock.LeaseLost:
            for message, spans_of_one in zip(messages, spans, strict=True):
                if message.state != "done":
                    spans_of_one.remove(span)
        span.done = self.disk.now()

    def ack(self, _: penstock.TimeQueue) -> None:
        final = self.rng.random() < 0.1 and not self._quiet
        for queue, message in self._pick(1):
            self._remove([message], lambda: queue.ack(message, durable=final), final=final)  # noqa: B023

    def ack_many(self, queue: penstock.TimeQueue) -> None:
        mine = [pair for pair in self.held if pair[0] is queue]
        self.held = [pair for pair in self.held if pair[0] is not queue]
        messages = [message for _, message in mine]
        if messages:
            self._remove(messages, lambda: queue.ack_many(messages))

    def release(self, _: penstock.TimeQueue) -> None:
        delay = self.rng.choice((None, 3.0, 1e6))
        for _, message in self._pick(1):
            sent = self.ledger.sent[found(message).token]
            if delay:
                sent.later_us.append(self.clock.wall_us() + int(delay * 1_000_000))
            try:
                message.release(delay=delay)
            except penstock.LeaseLost:
                pass

    def extend(self, _: penstock.TimeQueue) -> None:
        if self.held:
            try:
                self.rng.choice(self.held)[1].extend(100)
            except penstock.LeaseLost:
                pass

    def cancel(self, queue: penstock.TimeQueue) -> None:
        waiting = list(queue.browse())
        if not waiting:
            return
        message = self.rng.choice(waiting)
        span = self._span()
        span.final = True
        removed = self.ledger.sent[found(message).token].removed
        removed.append(span)
        if not queue.cancel(message.id):
            removed.remove(span)
        span.done = self.disk.now()

    # ------------------------------------------------------------ the rest

    def sync_index(self, queue: penstock.TimeQueue) -> None:
        span = self._span()
        queue.sync_index()
        span.done = self.disk.now()
        self.ledger.syncs.append(span)

    def reopen(self, queue: penstock.TimeQueue) -> None:
        if self._depth:
            return  # it may be the one that is in a call
        self._leave(queue)
        if self.rng.random() < 0.7:
            queue.close()
        else:
            abandon(queue)
        self.queues.append(self._open())

    def _leave(self, queue: penstock.TimeQueue) -> None:
        self.held = [pair for pair in self.held if pair[0] is not queue]
        self.queues.remove(queue)


def abandon(queue: penstock.TimeQueue) -> None:
    """As when its process is killed."""
    client, queue._client = queue._client, None
    queue._closed = True
    if client is not None:
        client.forget()
