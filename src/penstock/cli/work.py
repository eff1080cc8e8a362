"""``penstock work``: a pool of processes that call a function with each message. Decides when they start and end; the
messages are theirs.
"""

from __future__ import annotations

import contextlib
import json as json_format
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.exits import NOTHING, OK, USAGE, Failure
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, Lease, OnlyKeys, OnlyTypes, QueuePath, RetryDelay, UntilEmpty, examples
from penstock.cli.output import complain, say_json
from penstock.cli.signals import asked_to_end, code_of
from penstock.cli.values import span_s
from penstock.cli.worker import UNUSABLE

EXAMPLES = examples(
    "penstock work orders shop.jobs:handle",
    "penstock work orders shop.jobs:handle --processes 4 --time-limit 5m --retry-delay 30s",
    "penstock work orders shop.jobs:handle --until-empty --json > work.log",
    "penstock work orders shop.jobs:refund --type refund --type chargeback",
    "penstock work orders shop.jobs:handle --once",
)

BACKOFF_S = 0.1  # before a crashed worker is started again; doubled each time it crashes without having done anything
BACKOFF_S_MAX = 30.0
LOOK_S = 0.05  # how often the pool looks at clocks and at processes that ended
REPORT_BYTES = 65536


class Process:
    """A worker's place in the pool: one process after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.running: subprocess.Popen[bytes] | None = None
        self.reports = -1
        self.lifeline = -1
        self.unread = b""
        self.message: str | None = None
        self.began_s = 0.0
        self.crashes = 0
        self.start_s = 0.0  # not before
        self.over_time = False
        self.said_finished = False
        self.finished = False

    def start(self, program: str, orders: dict[str, Any]) -> None:
        self.reports, theirs = os.pipe()
        ours_to_hold, self.lifeline = os.pipe()
        os.set_blocking(self.reports, False)
        told = json_format.dumps({**orders, "reports": theirs, "lifeline": ours_to_hold})
        try:
            self.running = subprocess.Popen(
                [sys.executable, "-m", program, told],
                pass_fds=(theirs, ours_to_hold),
                env=_environment(),
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the pool alone, and what the function starts is killed with it
            )
        except OSError:
            os.close(self.reports)
            os.close(self.lifeline)
            raise
        finally:
            os.close(theirs)
            os.close(ours_to_hold)
        self.message = None
        self.over_time = False
        self.said_finished = False
        self.unread = b""

    def read(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reports, REPORT_BYTES):
                self.unread += data
        *lines, self.unread = self.unread.split(b"\n")
        return [json_format.loads(line) for line in lines]

    def stop(self) -> None:
        if self.running is not None:
            self.running.terminate()  # nothing happens if it has ended

    def kill(self) -> None:
        if self.running is not None and self.running.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)

    def ended(self) -> None:
        os.close(self.reports)
        os.close(self.lifeline)
        self.running = None


def _environment() -> dict[str, str]:
    """A worker finds the same Penstock, also where it was found by a relative path."""
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(penstock.__file__).absolute().parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class Pool:
    """Processes that run ``program``, each with the same orders."""

    program = "penstock.cli.worker"

    def __init__(self, orders: dict[str, Any], processes: int, time_limit_s: float | None, json: bool) -> None:
        self._orders = orders
        self._processes = [Process(number + 1) for number in range(processes)]
        self._time_limit_s = time_limit_s
        self._json = json
        self._signals: list[int] = []
        self._asked = 0
        self._selector = selectors.DefaultSelector()
        self.counts = {"done": 0, "failed": 0, "crashed": 0, "over_time": 0}
        self.unusable: str | None = None

    # ------------------------------------------------------------ running

    def run(self) -> None:
        before = {number: signal.signal(number, self._take) for number in asked_to_end()}
        try:
            while not self._all_finished():
                self._pass_signals_on()
                self._start_due()
                self._selector.select(LOOK_S)
                for process in self._processes:
                    self._look_at(process)
        finally:
            for process in self._processes:
                process.kill()
                if process.running is not None:
                    process.running.wait()
                    process.ended()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()

    @property
    def ended_by(self) -> int | None:
        return self._signals[0] if self._signals else None

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _all_finished(self) -> bool:
        stopping = bool(self._signals) or self.unusable is not None
        return all(process.running is None and (process.finished or stopping) for process in self._processes)

    def _pass_signals_on(self) -> None:
        """The first lets workers finish what they have in hand, the second ends them."""
        if self._asked >= len(self._signals):
            return
        first = self._asked == 0
        self._asked = len(self._signals)
        if first and len(self._signals) == 1:
            self._log("stopping", text="stopping: what is in hand is finished; again to stop at once")
            for process in self._processes:
                process.stop()
        else:
            self._log("killing", text="stopping at once: what is in hand goes back to the queue")
            for process in self._processes:
                process.kill()

    def _start_due(self) -> None:
        if self._signals or self.unusable is not None:
            return
        for process in self._processes:
            if process.running is None and not process.finished and time.monotonic() >= process.start_s:
                try:
                    process.start(self.program, self._orders)
                except OSError as error:  # too many processes, say: the others go on
                    again_s = self._restart(process)
                    text = f"it could not be started: {error}; tried again in {again_s:g} s"
                    self._log("not_started", process, text=text, error=str(error), again_s=again_s)
                    continue
                self._selector.register(process.reports, selectors.EVENT_READ)
                assert process.running is not None
                self._log("started", process, quiet=True, pid=process.running.pid)

    def _look_at(self, process: Process) -> None:
        if process.running is None:
            return
        status = process.running.poll()  # before the last reports are read
        for report in process.read():
            self._hear(process, report)
        if status is not None:
            self._selector.unregister(process.reports)
            process.ended()
            self._ended(process, status)
        elif self._is_over_time(process):
            process.over_time = True
            process.kill()

    def _is_over_time(self, process: Process) -> bool:
        limit_s = self._time_limit_s
        return limit_s is not None and process.message is not None and time.monotonic() - process.began_s > limit_s

    # ------------------------------------------------------------ what workers say, and how they end

    def _hear(self, process: Process, report: dict[str, Any]) -> None:
        event = report.pop("event")
        if event == "began":
            process.message, process.began_s = report["id"], time.monotonic()
            return
        if event in ("done", "failed"):
            seconds = round(time.monotonic() - process.began_s, 6)
            process.message = None
            process.crashes = 0
            self.counts[event] += 1
            if event == "done":
                self._log("done", process, quiet=True, seconds=seconds, **report)
            else:
                text = f"message {report['id']} failed, and is tried again: {report['error']}"
                self._log("failed", process, text=text, seconds=seconds, **report)
        elif event == "finished":
            process.said_finished = True
        elif event == "unusable":
            self.unusable = f"{self._orders['function']}: {report['error']}"
            for other in self._processes:
                other.stop()

    def _ended(self, process: Process, status: int) -> None:
        if status in (0, UNUSABLE) or self._signals or self.unusable is not None:
            finds_nothing = self._orders["until_empty"] and process.said_finished
            process.finished = status == 0 and (self._orders["once"] or finds_nothing)
            self._log("ended", process, quiet=True, status=status)
            if status == 0 and not process.finished:
                self._restart(process)  # the function has ended the process
            return
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        if process.over_time:
            self.counts["over_time"] += 1
            how = f"took longer than {self._time_limit_s:g} s and was killed"
        else:
            self.counts["crashed"] += 1
        text = f"it {how}" + (f"; message {process.message} goes back to the queue" if process.message else "")
        again_s = None
        if self._orders["once"]:
            process.finished = True
        else:
            again_s = self._restart(process)
            text += f"; started again in {again_s:g} s"
        event = "over_time" if process.over_time else "crashed"
        self._log(event, process, text=text, status=status, message=process.message, again_s=again_s)

    def _restart(self, process: Process) -> float:
        pause_s = min(BACKOFF_S * 2.0 ** min(process.crashes, 20), BACKOFF_S_MAX)
        process.start_s = time.monotonic() + pause_s
        process.crashes += 1
        return pause_s

    def _log(
        self,
        event: str,
        process: Process | None = None,
        *,
        text: str | None = None,
        quiet: bool = False,
        **fields: Any,
    ) -> None:
        if self._json:
            row = {"event": event, "time": time.time(), **({"worker": process.number} if process else {}), **fields}
            say_json(row)
            sys.stdout.flush()
        elif not quiet:
            shown = text or " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
            complain(f"worker {process.number}: {shown}" if process else shown)
            if "trace" in fields:
                sys.stderr.write(fields["trace"])
                sys.stderr.flush()


def work(
    queue: QueuePath,
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION", help="Called with each message; may be async. Found from the current directory."
        ),
    ],
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=500, help="So many at a time.")] = 1,
    prefetch: Annotated[
        int, typer.Option(min=1, max=10_000, help="Messages that a process takes at once. More for short work.")
    ] = 1,
    time_limit: Annotated[
        float | None,
        typer.Option(
            parser=span_s, metavar="TIME", help="A process over it for one message is killed; the message comes back."
        ),
    ] = None,
    retry_delay: RetryDelay = None,
    lease: Lease = None,
    type: OnlyTypes = None,
    key: OnlyKeys = None,
    once: Annotated[
        bool, typer.Option("--once", help="One message and the end; exit code 1 if none is due, or if it failed.")
    ] = False,
    until_empty: UntilEmpty = False,
    json: Json = False,
) -> int:
    """Call a function with each message, in a pool of processes.

    The function returns: the message is acknowledged. It raises: the error is logged, and the message goes back for
    --retry-delay. A process that dies is started again, and its message is back in the queue. Ctrl-C and SIGTERM let
    every process finish the message in hand and give back the rest; a second one stops them at once. The log goes to
    standard error; with --json to standard output, and what the function prints to standard error.
    """
    if once and (until_empty or processes > 1):
        raise typer.BadParameter("--once is one message in one process: leave out --until-empty and --processes")
    if time_limit is not None and time_limit <= 0:
        raise typer.BadParameter("--time-limit must be more than 0 seconds")
    open_queue(queue).close()  # restores it, if that is due, and says what is wrong with it before anything is started
    pool = Pool(
        {
            "queue": str(Path(queue).absolute()),
            "function": function,
            "prefetch": prefetch,
            "retry_delay": retry_delay,
            "lease": lease,
            "type": type or None,
            "key": key or None,
            "once": once,
            "until_empty": until_empty,
            "quiet_stdout": json,
        },
        processes,
        time_limit,
        json,
    )
    pool.run()
    if pool.unusable is not None:
        raise Failure(pool.unusable, USAGE)
    if pool.ended_by is not None:
        return code_of(pool.ended_by)
    return NOTHING if once and not pool.counts["done"] else OK
