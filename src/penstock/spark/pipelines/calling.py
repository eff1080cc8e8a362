"""Owns calls of a function in a process of its own: with retries, and with time limits that hold. A call past its limit
ends with its process, which is started anew; so does one that ends its process itself. Never decides what becomes of a
message.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.scripts.calling import error_text
from penstock.spark.pipelines import child as C
from penstock.timequeue.retries import text_of

CALLERS_MAX = 8  # processes beside a worker of Spark's: more functions than a pipeline has, as a rule
START_S = 60.0  # for a process to begin and import the function
END_S = 5.0  # for a process that has closed its pipe to end: threads of the function's may keep it


class Function(msgspec.Struct, frozen=True):
    """What is called, and how."""

    function: str | bytes  # module:name, or pickled
    called: str  # for people
    retries: int
    retry_wait_s: float
    time_limit_s: float | None


class Answer(msgspec.Struct, frozen=True):
    """Of one call."""

    result: Any = None
    error: str | None = None


class Caller:
    """A process for one function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 1  # of the next call that is sent: an answer has that of its call
        self._commands: Connection
        self._answers: Connection
        self._ended: int  # can be read when the process has ended

    def calls(self, several: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        """An answer for each, in order."""
        answered = False
        try:
            yield from self._all_answers(several)
            answered = True
        finally:
            if not answered:  # its further answers would be taken for those of the next calls
                self.close()

    def _all_answers(self, several: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        done, tries = 0, self._function.retries + 1
        while done < len(several):
            for answer in self._served(self._send(several[done:], tries), tries):
                if isinstance(answer, int):  # the process is lost: so many tries has its call left
                    tries = answer
                    break
                yield answer
                done += 1
                tries = self._function.retries + 1
                if done == len(several):
                    return

    def _served(self, number: int, tries: int) -> Iterator[Answer | int]:
        """Answers, as they come; in the end, if the process is lost, the tries that its call has left."""
        left = tries
        pause_s = 0.0
        while True:
            kind, value = self._receive(number, self._function.time_limit_s, pause_s)
            pause_s = 0.0
            if kind in (C.DONE, C.FAILED):
                yield _unpickled(value) if kind == C.DONE else Answer(error=value)
                number += 1
                left = self._function.retries + 1
            elif kind == C.AGAIN:
                left -= 1
                pause_s = self._function.retry_wait_s
            else:
                left -= 1
                if left < 1:
                    yield Answer(error=value)
                    left = self._function.retries + 1
                else:
                    time.sleep(self._function.retry_wait_s)
                yield left
                return

    def _receive(self, number: int, limit_s: float | None, pause_s: float) -> tuple[str, Any]:
        """The next answer, to this call; what became of the process, if there is none."""
        try:
            answer = self._next(None if limit_s is None else limit_s + pause_s)
        except (EOFError, ConnectionError):
            return "lost", f"{self._function.called}: {self._ending()}"
        if answer is None:
            self.close()
            return "late", f"TimeoutError: {self._function.called} took longer than {limit_s:g} s"
        to, kind, value = answer
        if to != number:
            self.close()
            return "lost", f"{self._function.called}: {_not_asked(to)}"
        return kind, value

    def _next(self, limit_s: float | None) -> tuple[int, str, Any] | None:
        """What the process says; None if that takes too long. Its pipe alone does not tell that it has ended: processes
        that it forked may have it, too."""
        if not wait([self._answers, self._ended], limit_s):
            return None
        if not self._answers.poll():
            raise EOFError
        to, kind, value = self._answers.recv()
        return to, kind, value

    def _ending(self) -> str:
        wait([self._ended], END_S)
        code = self.close()
        return f"it ended its process, by signal {-code}" if code < 0 else f"it ended its process, with code {code}"

    def _send(self, several: Sequence[tuple[Any, ...]], first_tries: int) -> int:
        """The number of the first of them."""
        first = self._number
        self._number += len(several)
        given = (first, several, first_tries, self._function.retries + 1, self._function.retry_wait_s)
        if self._process is not None and wait([self._ended], 0):
            self.close()  # a pipe that others have may be full for ever
        if self._process is not None:
            with contextlib.suppress(PenstockError):  # it has gone since, or says what nobody asked for
                self._hand_over(given, first)
                return first
        self._start()
        self._hand_over(given, first)
        return first

    def _hand_over(self, given: Any, number: int) -> None:
        """To the process, which is closed if that fails."""
        with contextlib.suppress(ConnectionError):  # why is seen when it does not answer
            self._commands.send(given)
        self._await_ready(number)

    def _start(self) -> None:
        theirs_in, self._commands = Pipe(duplex=False)
        self._answers, theirs_out = Pipe(duplex=False)
        numbers = (theirs_in.fileno(), theirs_out.fileno())
        with theirs_in, theirs_out:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.spark.pipelines.child", *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=numbers,
                process_group=0,
            )
        self._ended = os.pidfd_open(self._process.pid)
        self._hand_over((self._function.function, sys.path), 0)

    def _await_ready(self, number: int) -> None:
        """No time that a call may take."""
        try:
            answer = self._next(START_S)
        except (EOFError, ConnectionError):
            raise PenstockError(f"{self._function.called}: {self._ending()} before it could be called") from None
        if answer is None:
            self.close()
            raise PenstockError(f"{self._function.called}: its process did not begin within {START_S:g} s")
        to, kind, said = answer
        if to != number or kind != C.READY:
            self.close()
            raise PenstockError(
                f"{self._function.called} cannot be called: {said if kind == C.UNUSABLE else _not_asked(to)}"
            )

    def close(self) -> int:
        """What it does at the moment does not go on, nor do the processes that it started. The code it ended with."""
        if self._process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):  # before it is waited for: then its number may be another's
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()  # it may have left its group
        code = self._process.wait()
        self._commands.close()
        self._answers.close()
        os.close(self._ended)
        self._process = None
        return code


def _not_asked(to: int) -> str:
    return f"its process gave an answer that nobody waits for, to call {to}"


def _unpickled(result: bytes) -> Answer:
    """Of a class that only the function's process has, or whose objects cannot be made again, nothing can be had."""
    try:
        return Answer(pickle.loads(result))
    except Exception as error:
        return Answer(error=f"what it returned cannot be had: {text_of(error_text(error))}")


_callers: dict[Function, Caller] = {}


def caller_of(function: Function) -> Caller:
    """One for each function in a process: Spark's workers live longer than their tasks, and serve many pipelines."""
    found = _callers.pop(function, None) or Caller(function)
    while len(_callers) >= CALLERS_MAX:
        _callers.pop(next(iter(_callers))).close()
    _callers[function] = found
    return found
