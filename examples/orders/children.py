"""Owns the processes of a run: starts them, kills them, and leaves none behind, Java and Spark's workers included.

All have the folder of the run in their environment, as a mark that is this run's alone. Spark's workers leave the group
of their driver, and live on for a while when it is killed; by the mark they are found all the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]
MARK = "PENSTOCK_ORDERS"
GONE_S_MAX = 20.0  # until the last process is gone; the system takes its time to free much memory


class Child:
    """A process with a group of its own: Ctrl-C in the terminal is not for it."""

    def __init__(self, name: str, module: str, *arguments: object) -> None:
        self.name = name
        self._command = [sys.executable, "-m", f"{__package__}.{module}", *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None
        self.is_killed = False  # by us

    def start(self, environment: dict[str, str], log: Path) -> None:
        self.is_killed = False
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll() if self._process else None

    def ask_to_end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL for it and its group: with the Spark driver its Java dies, too."""
        if self._process is not None and self._process.poll() is None:
            self.is_killed = True
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Children:
    """All processes of a run."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._logs = folder / "logs"
        self._mark = f"{MARK}={folder}"
        core = Path(penstock.__file__).parents[1]
        self._environment = {
            **os.environ,
            MARK: str(folder),
            "PYTHONPATH": os.pathsep.join([str(core), str(ROOT)]),
            "TMPDIR": str(scratch),
        }
        self._started: list[Child] = []

    def start(self, child: Child) -> None:
        self._started.append(child)
        child.start(self._environment, self._logs / f"{child.name}.log")

    def end_all(self) -> None:
        """Whatever was started, by whomever of them, is gone after this."""
        for child in self._started:
            child.kill()
        deadline = time.monotonic() + GONE_S_MAX
        while pids := self._marked():
            for pid in pids:
                _kill(pid)
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {pids} do not go away")
            time.sleep(0.02)

    def _marked(self) -> list[int]:
        mark = os.fsencode(self._mark)
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, mark)]


def _has(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # somebody else's, or gone meanwhile
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
