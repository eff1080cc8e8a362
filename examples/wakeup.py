"""A hotel's wake-up call service, with no server: senders book calls, receivers make them, a queue is all they share.

Every guest is called at the booked time and, as booked, some times more. The senders and receivers are processes that
know nothing of each other. One receiver is killed with a guest on the line; another one makes the call instead. At the
end the bookings are compared with the calls that were made, and the lateness of the calls is shown.

    python examples/wakeup.py --guests 200 --seconds 15
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock

REPEATS_MAX = 3  # a guest who sleeps on is called again, up to this many times
REPEAT_EVERY_S = 0.5
ALERT_SHARE = 0.6  # how many guests are awake after a call
RING_S = 0.02  # how long a call takes
VIEW_EVERY_S = 0.2
PLAIN_VIEW_EVERY_S = 1.0
LATE_END_S = 5.0  # how long after the last booked call we still wait for calls
BAR_WIDTH = 40
STEPS_MS = (0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)

_processes = multiprocessing.get_context("spawn")  # autonomous: nothing is inherited but the queue's path


# ---------------------------------------------------------------- the senders


def book_calls(path: str, journal: str, sender: int, guests: list[int], start_s: float, seconds: float) -> None:
    """One front desk. A booking is written down only after the queue has confirmed it."""
    _leave_quietly()
    rng = random.Random(sender)
    with penstock.open(path) as queue, open(journal, "a") as book:
        for guest in guests:
            now_s = time.time()
            wake_s = now_s + rng.uniform(0.3, max(start_s + seconds - now_s, 0.5))
            repeats = rng.randint(0, REPEATS_MAX)
            wake_up = {"guest": guest, "room": 100 + guest, "wake_s": wake_s, "repeats": repeats}
            queue.put(wake_up, deliver_at=wake_s, priority=1, type="wake-up", key=f"room {100 + guest}")
            _write(book, wake_up)
            time.sleep(rng.uniform(0, seconds / 4 / len(guests)))


# ---------------------------------------------------------------- the receivers


def make_calls(path: str, journal: str, receiver: int, end_s: float, doom: str) -> None:
    """One telephone. A guest who does not wake up is called again later: the message goes back with a delay.

    Whoever finds ``doom`` with a guest on the line is killed.
    """
    _leave_quietly()
    rng = random.Random(1000 + receiver)
    with penstock.open(path) as queue, open(journal, "a") as log:
        while (left_s := end_s - time.time()) > 0:
            try:
                message = queue.get(timeout=left_s, lease=10)
            except penstock.QueueEmpty:
                return
            now_s = time.time()
            if _doomed(doom):
                _write(log, {"died": message.body["guest"], "message": message.id})
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(RING_S)  # ring, ring
            call = message.body
            awake = rng.random() < ALERT_SHARE
            last = awake or message.attempts > call["repeats"]
            late_s = now_s - message.deliver_us / 1e6
            # Decided first, then written down: what is in the log has happened.
            if last:
                message.ack()
            else:
                message.release(delay=REPEAT_EVERY_S)
            _write(
                log,
                {
                    "guest": call["guest"],
                    "message": message.id,
                    "attempt": message.attempts,
                    "awake": awake,
                    "last": last,
                    "late_s": late_s,
                },
            )


def _doomed(doom: str) -> bool:
    try:
        os.unlink(doom)  # only one can
    except FileNotFoundError:
        return False
    return True


def _write(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _leave_quietly() -> None:
    """Ctrl-C goes to all processes of the terminal; whoever started us ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---------------------------------------------------------------- the account


@dataclass
class Account:
    """What was booked and what was done, as the processes wrote it down."""

    booked: dict[int, dict[str, Any]] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    died: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Account:
        account = cls()
        for file in sorted(folder.glob("*.jsonl")):
            for line in _whole_lines(file):
                if "died" in line:
                    account.died.append(line)
                elif "attempt" in line:
                    account.calls.append(line)
                else:
                    account.booked[line["guest"]] = line
        return account

    @property
    def finished(self) -> set[int]:
        return {call["guest"] for call in self.calls if call["last"]}

    def faults(self) -> list[str]:
        """What is not as it must be; nothing, if the service works."""
        found = []
        finished = Counter(call["guest"] for call in self.calls if call["last"])
        for guest in self.booked:
            if finished[guest] != 1:
                found.append(f"guest {guest} was finished with {finished[guest]} times")
        for guest in sorted(finished.keys() - self.booked.keys()):
            found.append(f"guest {guest} was called and had not booked")
        deaths = Counter(death["died"] for death in self.died)
        for guest, booking in self.booked.items():
            made = [call for call in self.calls if call["guest"] == guest]
            if len(made) > booking["repeats"] + 1:
                found.append(f"guest {guest} was called {len(made)} times, booked were {booking['repeats'] + 1}")
            attempts = sorted(call["attempt"] for call in made)
            # Each delivery was either a call or died with its receiver.
            if len(set(attempts)) != len(attempts) or (attempts and attempts[-1] != len(attempts) + deaths[guest]):
                found.append(f"guest {guest} was called in attempts {attempts}")
        return found


def _whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    """A process that is killed leaves its last line as it is."""
    for line in file.read_text().split("\n")[:-1]:
        yield json.loads(line)


# ---------------------------------------------------------------- what people see


Status = dict[str, int]


def status(account: Account, alive: int, queue: penstock.TimeQueue) -> Status:
    stats = queue.stats()
    return {
        "booked": len(account.booked),
        "calls made": len(account.calls),
        "guests done": len(account.finished),
        "waiting": stats.waiting,
        "on the line": stats.pending,
        "receivers": alive,
        "killed": len(account.died),
    }


@contextlib.contextmanager
def live_view(guests: int) -> Iterator[Callable[[Status], None]]:
    """Shows a panel that changes, in a terminal; elsewhere a line a second."""
    next_s = 0.0

    def plain(now: Status) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + PLAIN_VIEW_EVERY_S
            print("   ".join(f"{name} {count}" for name, count in now.items()), flush=True)

    if not sys.stdout.isatty():
        yield plain
        return
    try:
        from rich.live import Live
        from rich.panel import Panel
    except ImportError:
        yield plain
        return

    def panel(now: Status) -> Panel:
        done = now["guests done"] * BAR_WIDTH // guests
        lines = ["#" * done + "." * (BAR_WIDTH - done), *(f"{name:<12} {count:>6}" for name, count in now.items())]
        return Panel("\n".join(lines), title=f"wake-up calls for {guests} guests", expand=False)

    with Live(refresh_per_second=10) as live:
        yield lambda now: live.update(panel(now))


def histogram(late_s: list[float]) -> list[str]:
    """How late the calls were, in steps that double or so."""
    late_ms = [max(late * 1000, 0) for late in late_s]
    counts = []
    below = 0.0
    for step in (*STEPS_MS, float("inf")):
        counts.append((below, step, sum(below <= late < step for late in late_ms)))
        below = step
    while counts and not counts[-1][2]:
        counts.pop()
    most = max((count for _, _, count in counts), default=0)
    lines = []
    for low, high, count in counts:
        label = f"{low:g} to {high:g} ms" if high != float("inf") else f"over {low:g} ms"
        bar = "#" * -(-count * BAR_WIDTH // most) if count else ""
        lines.append(f"  {label:>16}  {count:>5}  {bar}")
    return lines


def summary(account: Account, faults: list[str]) -> str:
    late = sorted(call["late_s"] for call in account.calls)
    lines = [
        "",
        f"calls booked        {len(account.booked)}",
        f"guests called       {len(account.finished)}",
        f"calls made          {len(account.calls)}, with repeats",
        f"receivers killed    {len(account.died)}"
        + "".join(f"; guest {death['died']} was called by another one" for death in account.died if not faults),
        "",
        "lateness of calls",
        *histogram(late),
    ]
    if late:
        p99 = late[min(int(len(late) * 0.99), len(late) - 1)]
        lines.append(f"  median {statistics.median(late) * 1000:.2f} ms, 99 % within {p99 * 1000:.2f} ms")
    lines += ["", *(faults or ["every booked call was made, none was lost and none was made up"])]
    return "\n".join(lines)


# ---------------------------------------------------------------- putting it together


def run(options: argparse.Namespace, folder: Path) -> int:
    path = folder / "queue"
    journals = folder / "journals"
    journals.mkdir(parents=True)
    # Every confirmed booking is on disk before its guest is told so.
    queue = penstock.create(path, slots=max(4 * options.guests, 64), data_bytes=max(1024 * options.guests, 1 << 20))
    start_s = time.time() + 0.5
    end_s = start_s + options.seconds + REPEATS_MAX * (REPEAT_EVERY_S + 0.1) + LATE_END_S
    half_s = start_s + options.seconds / 2
    doom = folder / "doom"
    victims = 1 if options.receivers > 1 else 0  # somebody must be left to make the calls
    senders = []
    for n in range(options.senders):
        guests = list(range(n, options.guests, options.senders))
        arguments = (str(path), str(journals / f"sender-{n}.jsonl"), n, guests, start_s, options.seconds)
        senders.append(_processes.Process(target=book_calls, args=arguments, daemon=True))
    receivers = []
    for n in range(options.receivers):
        arguments = (str(path), str(journals / f"receiver-{n}.jsonl"), n, end_s, str(doom))
        receivers.append(_processes.Process(target=make_calls, args=arguments, daemon=True))
    try:
        with live_view(options.guests) as show:
            for process in (*receivers, *senders):
                process.start()
            while True:
                account = Account.read(journals)
                alive = sum(process.is_alive() for process in receivers)
                show(status(account, alive, queue))
                if victims and (time.time() > half_s or 2 * len(account.finished) > options.guests):
                    doom.touch()
                    victims = 0
                if len(account.finished) >= options.guests or time.time() > end_s or not alive:
                    break
                time.sleep(VIEW_EVERY_S)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nobody is left behind, however often it is pressed
        for process in (*senders, *receivers):
            if process.pid is not None:
                process.kill()  # they hold nothing that this could harm
                process.join()
    account = Account.read(journals)
    faults = account.faults()
    stats = queue.stats()
    if len(account.booked) != options.guests:
        faults.append(f"{len(account.booked)} of {options.guests} guests have booked")
    if stats.waiting or stats.pending or stats.filling:
        faults.append(f"left in the queue: {stats.waiting} waiting, {stats.pending + stats.filling} pending")
    queue.close()
    print(summary(account, faults), flush=True)
    return 1 if faults else 0


def _at_least(least: float, kind: type = int) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guests", type=_at_least(1), default=300, help="guests who book a call (default: 300)")
    parser.add_argument("--seconds", type=_at_least(1, float), default=15.0, help="within which they want it (15)")
    parser.add_argument("--senders", type=_at_least(1), default=3, help="processes that book calls (3)")
    parser.add_argument("--receivers", type=_at_least(1), default=4, help="processes that make them (4)")
    parser.add_argument("--dir", type=Path, help="keep the queue and the journals here (default: a temporary one)")
    options = parser.parse_args()
    if options.dir is not None and options.dir.exists() and any(options.dir.iterdir()):
        parser.error(f"{options.dir} is not empty")
    folder = options.dir or Path(tempfile.mkdtemp(prefix="penstock-wakeup-"))
    # As Ctrl-C: so that nobody is left behind when somebody else ends us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(options, folder)
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
        return 130
    finally:
        if options.dir is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
