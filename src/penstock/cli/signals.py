"""Owns when Ctrl-C, SIGTERM and SIGHUP may come in: anywhere, except between two steps that belong together."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from penstock.cli.exits import HUNG_UP, INTERRUPTED, TERMINATED, HungUp, Terminated

P = ParamSpec("P")
Result = TypeVar("Result")

_ENDING: dict[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: HungUp,
}


def _end(number: int, frame: FrameType | None) -> None:
    raise _ENDING[number]


def listen() -> None:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C does: temporary directories go, messages are given back at once."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL and _in_main_thread():
            signal.signal(number, _end)


def asked_to_end() -> list[signal.Signals]:
    """By what a command may be; with ``nohup``, not by SIGHUP."""
    kept = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else []
    return [number for number in map(signal.Signals, _ENDING) if number not in kept]


def code_of(number: int) -> int:
    """Of a command that was ended by it."""
    return {signal.SIGINT: INTERRUPTED, signal.SIGHUP: HUNG_UP}.get(signal.Signals(number), TERMINATED)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Held:
    """Inside, signals that would end the program wait: for its end, or for a call that may be interrupted.

    Done with handlers and not with the signal mask, which is a thread's own: a progress bar has a thread that would
    take the signal for us. Handlers run in the main thread alone, so that in any other there is nothing to do.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []
        self._open = False

    def __enter__(self) -> Self:
        if _in_main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if handler not in (None, signal.SIG_IGN):
                    self._before[number] = handler
                    signal.signal(number, self._take)
        return self

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            raise _ENDING[number]
        self._came.append(number)

    def interruptible(self, work: Callable[P, Result], *arguments: P.args, **options: P.kwargs) -> Result:
        """Do something that may take long, and that may end in the middle."""
        try:
            self._open = True
            for number in self._came:
                raise _ENDING[number]
            return work(*arguments, **options)
        finally:
            self._open = False

    def forget(self) -> None:
        """What came has been heard: the next one is another."""
        self._came.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if not isinstance(error, KeyboardInterrupt | Terminated):
            for number in self._came:
                os.kill(os.getpid(), number)
