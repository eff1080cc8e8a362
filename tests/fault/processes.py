"""Other processes for the tests: forked, heard through a pipe, and gone when the test ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

PATIENCE_S = 20.0  # a child that says nothing for so long has failed; far above anything a loaded machine needs

_fork = multiprocessing.get_context("fork")


class Child:
    """A process that runs ``work(say, *arguments)``; what it says is heard here in order."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._ear, mouth = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_run, args=(work, mouth, arguments), daemon=True)
        self._process.start()
        mouth.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def hear(self, timeout_s: float = PATIENCE_S) -> Any:
        """The next thing that it said. What it raised is raised here."""
        if not self._ear.poll(timeout_s):
            raise TimeoutError(f"child {self.pid} said nothing for {timeout_s} s")
        value = self._ear.recv()
        if isinstance(value, _Failure):
            raise AssertionError(f"the child failed:\n{value.text}")
        return value

    def has_spoken(self) -> bool:
        """Whether there is something to hear."""
        return self._ear.poll(0)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP; it is stopped when this returns."""
        self.send_signal(signal.SIGSTOP)
        self.until_stopped()

    def until_stopped(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while _state(self.pid) != "T":
            assert time.monotonic() < deadline, f"child {self.pid} did not stop"
            time.sleep(0.001)

    def go_on(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        self._process.kill()
        self._process.join()

    def join(self) -> int:
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None, f"child {self.pid} did not end"
        return self._process.exitcode

    def end(self) -> None:
        if self._process.is_alive():
            self.kill()
        self._ear.close()


def hold_and_fork(say: Callable[[Any], None], lock: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
    """Another thread is in the block of a lock when this one forks. Says the child, which does nothing for long."""
    inside = threading.Event()

    def hold() -> None:
        with lock():
            inside.set()
            time.sleep(60)

    threading.Thread(target=hold, daemon=True).start()
    assert inside.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    say(child)
    time.sleep(60)


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _run(work: Callable[..., Any], mouth: Any, arguments: tuple[Any, ...]) -> None:
    status = 1
    try:
        work(mouth.send, *arguments)
        status = 0
    except BaseException:
        with contextlib.suppress(OSError):  # nobody listens any more
            mouth.send(_Failure(traceback.format_exc()))
    finally:
        os._exit(status)  # not the test runner's own exit handlers


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
