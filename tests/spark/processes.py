"""Owns the processes that tests with Spark start beside their own: how they begin, and that they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock

ROOT = Path(__file__).resolve().parents[2]
CORE = Path(penstock.__file__).parents[1]
PATHS = os.pathsep.join(map(str, (ROOT / "tests/spark/quick_site", CORE, ROOT)))  # for Python: penstock, and tests
WAIT_S_MAX = 120.0


class Ended(AssertionError):
    """A process ended, or the time was over, before it was where it should be."""


class Started:
    """A process in a session of its own, with what it said in a file."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self._log = log
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                command,
                cwd=log.parent,
                env={**os.environ, "PYTHONPATH": PATHS, **environment},
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def wait_for(self, true: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + WAIT_S_MAX
        while not (found := true()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Ended(f"it did not get to {what}: {self.said()}")
            time.sleep(0.01)
        return found

    def wait(self) -> None:
        """Until it ends by itself, and well."""
        code = self.process.wait(WAIT_S_MAX)
        assert code == 0, self.said()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """It and its Java. Spark's Python workers have groups of their own, and live on for a while."""
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Drivers:
    """Drivers, the next one already starting while one runs: most of it is starting Java."""

    def __init__(self, folder: Path, *arguments: object, module: str = "tests.spark.driver") -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", module, str(folder), *map(str, arguments)]
        self._all: list[Started] = []

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._all:
            each.kill()

    def prepare(self, *arguments: str) -> Started:
        """One that starts, and waits to be told to go."""
        started = Started([*self._command, *arguments], self._folder / f"said.{len(self._all)}")
        self._all.append(started)
        return started
