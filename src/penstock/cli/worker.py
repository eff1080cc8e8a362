"""Owns one process of ``penstock work``: imports the function and calls it with each message until it is told to stop.

Started by the pool as ``python -m penstock.cli.worker``, with its orders as JSON. It reports in lines of JSON through a
pipe; the same pipe's other end tells it that the pool is gone. Never prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import penstock
from penstock.message import PENDING, Message
from penstock.scripts.naming import named
from penstock.store.directory import read_options
from penstock.timequeue import QueueConsumer
from penstock.timequeue.puts import is_traced

STOPS = (signal.SIGTERM, signal.SIGINT)
RETRY_S = 1.0  # so long waits a message that failed and has no backoff
UNUSABLE = 2  # the function cannot be had: starting again would not help

Report = Callable[..., None]
Work = Callable[[Message], Any]


def load(name: str) -> Work:
    found = named(name)
    if not callable(found):
        raise TypeError(f"{name} cannot be called")
    work: Work = found
    return _awaited(found) if inspect.iscoroutinefunction(found) else work


def _awaited(work: Callable[[Message], Any]) -> Work:
    runner = asyncio.Runner()
    return lambda message: runner.run(work(message))


class Worker:
    def __init__(self, orders: dict[str, Any], report: Report) -> None:
        self._orders = orders
        self._report = report
        self._stopped = False
        self._has_backoff = False
        self._consumer: QueueConsumer | None = None

    def stop(self, *_: object) -> None:
        self._stopped = True
        if self._consumer is not None:
            self._consumer.stop()

    def run(self) -> int:
        try:
            work = load(self._orders["function"])
        except BaseException as error:
            self._report("unusable", error=line(error), trace=traceback.format_exc())
            return UNUSABLE
        once = self._orders["once"]
        with penstock.open(self._orders["queue"]) as q:
            self._has_backoff = read_options(q.path).backoff is not None
            consumer = q.consumer(
                1 if once else self._orders["prefetch"],
                wait=0 if once or self._orders["until_empty"] else None,
                lease=self._orders["lease"],
                type=self._orders["type"],
                key=self._orders["key"],
            )
            self._report("ready")
            with consumer:
                self._consumer = consumer
                if self._stopped:  # while it was imported
                    return 0
                for message in consumer:
                    self._one(work, message, consumer)
                    if once:
                        consumer.stop()
        self._report("finished")
        return 0

    def _one(self, work: Work, message: Message, consumer: QueueConsumer) -> None:
        self._report("began", id=message.id, attempts=message.attempts)
        try:
            with _span_of(message):
                result = work(message)
            if message.wants_reply and message.state == PENDING:
                message.reply(result)  # what is no body is an error of the function
        except Exception as error:
            self._report("failed", id=message.id, error=line(error), trace=traceback.format_exc())
            if message.state == PENDING:
                _fail(message, error, self._delay_s(message))
        except BaseException:  # exit() in the function, say: with this process the message goes back
            if message.state == PENDING:
                _release(message, self._delay_s(message) or 0.0)
            raise
        else:
            self._report("done", id=message.id)

    def _delay_s(self, message: Message) -> float | None:
        """How long a message waits that failed: as long as was asked for; None: as its backoff says, if it has one."""
        asked_s: float | None = self._orders["retry_delay"]
        if asked_s is None and message.meta.b is None and not self._has_backoff:
            return RETRY_S
        return asked_s


def _span_of(message: Message) -> contextlib.AbstractContextManager[Any]:
    """Where the function's program uses OpenTelemetry, the work on a message is in the trace that it was put in."""
    if not is_traced():
        return contextlib.nullcontext()
    from penstock.tracing import handling  # optional

    return handling(message)


def _release(message: Message, delay_s: float) -> None:
    try:
        message.release(delay=delay_s)
    except penstock.LeaseLost:  # it is with somebody else already
        pass


def _fail(message: Message, error: Exception, delay_s: float | None) -> None:
    try:
        message.fail(error, delay=delay_s)
    except penstock.LeaseLost:
        pass


def line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def reporter(fd: int) -> Report:
    def report(event: str, **fields: Any) -> None:
        try:
            line = json.dumps({"event": event, **fields}).encode() + b"\n"
            while line:  # a signal may cut a write short, and half a line would be no report
                line = line[os.write(fd, line) :]
        except OSError:  # the pool is gone: its lifeline ends us
            pass

    return report


def _watch(lifeline: int, worker: Serving) -> None:
    """Nothing is ever written there: its end is the pool's end."""
    os.read(lifeline, 1)
    worker.stop()


class _Forks:
    """What the function forks is no worker: it ends when it is told to, also in its first moment."""

    def __init__(self) -> None:
        self._before = threading.local()

    def before(self) -> None:
        self._before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)

    def in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before.mask)

    def in_child(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.in_parent()


class Serving(Protocol):
    """One process of a pool, at its work until it is told to stop."""

    def stop(self, *_: object) -> None: ...
    def run(self) -> int: ...


def serve(make: Callable[[dict[str, Any], Report], Serving]) -> int:
    """Be what a pool has started, by its orders."""
    orders = json.loads(sys.argv[1])
    worker = make(orders, reporter(orders["reports"]))
    for number in STOPS:
        signal.signal(number, worker.stop)
    forks = _Forks()
    os.register_at_fork(before=forks.before, after_in_parent=forks.in_parent, after_in_child=forks.in_child)
    threading.Thread(target=_watch, args=(orders["lifeline"], worker), daemon=True).start()
    if orders["quiet_stdout"]:
        os.dup2(2, 1)  # standard output is the log's
    return worker.run()


if __name__ == "__main__":
    sys.exit(serve(Worker))
