"""Owns the looks at all queues of a root, again and again in one thread, and what was seen last. Opens a queue for each
look and leaves it: nobody finds it in use by us. Knows nothing of the web.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from penstock.console.history import History, Sample
from penstock.errors import PenstockError
from penstock.manager import QueueInfo, QueueManager
from penstock.store.options import BESIDE, DELETE
from penstock.timequeue import Stats
from penstock.timequeue.administration import glance
from penstock.timequeue.moving import DEAD

BUSY_S = 1.0  # one queue that is stuck shall not hold up the others
IDLE_SHARE = 4  # after a round that took long, so many times as long is waited: looking is not to be felt
RATES = ("puts", "gets", "acks", "retries", "syncs")
NAN = math.nan


class Seen(msgspec.Struct, kw_only=True):
    """What one look has shown of a queue, or why it has shown nothing."""

    at: float
    info: QueueInfo
    state: str
    error: str | None = None
    stats: Stats | None = None
    holders: int = 0
    rates: dict[str, float] = {}  # a second, since the look before
    dead: str | None = None  # the place of its dead letters
    dead_of: list[str] = []  # the queues whose dead letters these are

    @property
    def late_s(self) -> float | None:
        """How long the message that would be delivered now has been due."""
        return None if self.stats is None else _since(self.stats.late_at, self.at)

    @property
    def oldest_s(self) -> float | None:
        """The same of the one that has been due for the longest, of any priority."""
        return None if self.stats is None else _since(self.stats.oldest_due_at, self.at)


def _since(then: float | None, now: float) -> float | None:
    return None if then is None else max(now - then, 0.0)


def counts_of(stats: Stats) -> dict[str, int]:
    retries = stats.releases + stats.expired + stats.returned
    return {"puts": stats.puts, "gets": stats.gets, "acks": stats.acks, "retries": retries, "syncs": stats.syncs}


def rates_between(before: dict[str, int], now: dict[str, int], span_s: float) -> dict[str, float]:
    """Nothing is known of a counter that went back: it is another queue by now.

    >>> rates_between({"puts": 10}, {"puts": 30}, 2.0)
    {'puts': 10.0}
    """
    if span_s <= 0 or any(now[name] < count for name, count in before.items()):
        return {}
    return {name: (now[name] - count) / span_s for name, count in before.items()}


def place_of_dead(info: QueueInfo) -> str | None:
    """Where its dead letters go; None if they are deleted."""
    letters = info.options.dead_letter
    if letters == DELETE:
        return None
    return info.place + DEAD if letters == BESIDE else letters


class Watch:
    """All queues of a root. ``round`` looks once; ``start`` does it again and again."""

    def __init__(
        self,
        root: Path,
        *,
        interval_s: float,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root
        self.interval_s = interval_s
        self.error: str | None = None  # of the root itself
        self.started_at = wall()
        self._manager = QueueManager(root, busy_s=BUSY_S)
        self._wall = wall
        self._monotonic = monotonic
        self._seen: dict[str, Seen] = {}
        self._histories: dict[str, History] = {}
        self._counts: dict[str, tuple[float, dict[str, int]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-console", daemon=True)

    # ------------------------------------------------------------ what was seen

    def all(self) -> list[Seen]:
        """All queues, by name."""
        return list(self._seen.values())

    def find(self, name: str) -> Seen | None:
        return self._seen.get(name)

    def history(self, name: str) -> History:
        return self._histories.get(name) or History()

    # ------------------------------------------------------------ looking

    def start(self) -> None:
        self.round()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = self.interval_s
        while not self._ended.wait(pause_s):
            began_s = self._monotonic()
            self.round()
            took_s = self._monotonic() - began_s
            pause_s = max(self.interval_s - took_s, took_s * IDLE_SHARE)

    def round(self) -> None:
        """One look at each."""
        try:
            infos = self._manager.list()
        except (PenstockError, OSError) as error:  # the root has gone, say, and may come back
            self.error = str(error)
            self._seen = {}
            return
        seen: dict[str, Seen] = {}
        for info in infos:
            if self._ended.is_set():
                return
            seen[info.name] = self._look(info)
        _tell_dead(seen.values())
        self.error = None
        self._seen = seen  # as a whole: whoever reads it meanwhile has the old one
        for gone in self._histories.keys() - seen.keys():
            del self._histories[gone]
            self._counts.pop(gone, None)
        for name, each in seen.items():
            self._histories.setdefault(name, History()).add(sample_of(each), queues=len(seen))

    def _look(self, info: QueueInfo) -> Seen:
        state = str(info.state) if info.active else "inactive"
        seen = Seen(at=self._wall(), info=info, state=state, error=info.error, dead=place_of_dead(info))
        if info.error is None:
            try:
                seen.stats, seen.holders = glance(info.place, busy_s=BUSY_S)
                seen.at = self._wall()
                seen.rates = self._rates(info.name, seen.stats)
                return seen
            except (PenstockError, OSError) as error:
                seen.error = str(error)
        self._counts.pop(info.name, None)
        seen.state = "failed"
        return seen

    def _rates(self, name: str, stats: Stats) -> dict[str, float]:
        now_s, counts = self._monotonic(), counts_of(stats)
        before_s, before = self._counts.get(name, (now_s, {}))
        self._counts[name] = now_s, counts
        return rates_between(before, counts, now_s - before_s)


def _tell_dead(seen: Iterable[Seen]) -> None:
    """Mark queues that hold the dead letters of others."""
    places = {each.info.place: each for each in seen}
    for each in places.values():
        if each.dead is not None and each.dead in places:
            places[each.dead].dead_of.append(each.info.name)


def sample_of(seen: Seen) -> Sample:
    """For plots. A queue that could not be looked at is a gap, one with nothing due is not late."""
    if seen.stats is None:
        return Sample(seen.at, *([NAN] * (len(Sample._fields) - 1)))
    stats, rates = seen.stats, seen.rates
    return Sample(
        at=seen.at,
        waiting=stats.waiting,
        pending=stats.pending + stats.claimed,
        puts=rates.get("puts", NAN),
        acks=rates.get("acks", NAN),
        retries=rates.get("retries", NAN),
        oldest_s=seen.oldest_s or 0.0,
        late_s=seen.late_s or 0.0,
    )
