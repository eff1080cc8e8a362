"""Owns the looks at all queues of a root, again and again in one thread, and what was seen last. Opens a queue for each
look and leaves it: nobody finds it in use by us. Knows nothing of the web.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.console.history import History, Sample
from penstock.errors import PenstockError
from penstock.manager import QueueInfo, QueueManager
from penstock.manager.directory import members_of
from penstock.manager.macrolook import not_there
from penstock.store.options import BESIDE, DELETE
from penstock.timequeue import Stats, combined
from penstock.timequeue.administration import glance
from penstock.timequeue.measures import between
from penstock.timequeue.moving import DEAD

BUSY_S = 1.0  # one queue that is stuck shall not hold up the others
IDLE_SHARE = 4  # after a round that took long, so many times as long is waited: looking is not to be felt
FAILED = "failed"
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
    delivered_late_s: float | None = None  # 99 % of what was delivered since then was no later
    dead: list[str] = []  # where its dead letters go; a macro queue has several places
    dead_of: list[str] = []  # the queues whose dead letters these are
    members: list[str] = []  # of a macro queue

    @property
    def late_s(self) -> float | None:
        """How long the message that would be delivered now has been due."""
        return None if self.stats is None else _since(self.stats.late_at, self.at)

    @property
    def oldest_s(self) -> float | None:
        """The same of the one that has been due for the longest, of any priority."""
        return None if self.stats is None else _since(self.stats.oldest_due_at, self.at)


def counts_of(stats: Stats) -> dict[str, int]:
    retries = stats.releases + stats.expired + stats.returned
    return {"puts": stats.puts, "gets": stats.gets, "acks": stats.acks, "retries": retries, "syncs": stats.syncs}


def rates_between(before: Stats, now: Stats, span_s: float) -> dict[str, float]:
    """What happened a second. Nothing is known of a counter that went back: it is another queue by now."""
    earlier, counts = counts_of(before), counts_of(now)
    if span_s <= 0 or before.uuid != now.uuid or any(counts[name] < count for name, count in earlier.items()):
        return {}
    return {name: (counts[name] - count) / span_s for name, count in earlier.items()}


def _since(then: float | None, now: float) -> float | None:
    return None if then is None else max(now - then, 0.0)


def places_of_dead(info: QueueInfo) -> list[str]:
    """Where the dead letters of a queue of its own go; nowhere if they are deleted."""
    letters = info.options.dead_letter
    if letters == DELETE:
        return []
    return [info.place + DEAD if letters == BESIDE else letters]


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
        self._before: dict[str, tuple[float, Stats]] = {}
        self._added: dict[str, list[str]] = {}  # of a macro queue, the members whose figures were added up last
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
        if self._thread.is_alive():
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
            seen[info.name] = self._begun(info) if info.macro is not None else self._look(info)
        for info in infos:
            if info.macro is not None:
                self._add_up(seen[info.name], seen)
        _tell_dead(seen)
        self.error = None
        self._seen = seen  # as a whole: whoever reads it meanwhile has the old one
        self._remember(seen)

    def _remember(self, seen: dict[str, Seen]) -> None:
        for gone in self._histories.keys() - seen.keys():
            del self._histories[gone]
            self._before.pop(gone, None)
            self._added.pop(gone, None)
        for name, each in seen.items():
            self._histories.setdefault(name, History()).add(sample_of(each), queues=len(seen))

    def _begun(self, info: QueueInfo) -> Seen:
        state = str(info.state) if info.active else "inactive"
        return Seen(at=self._wall(), info=info, state=state, error=info.error)

    def _look(self, info: QueueInfo) -> Seen:
        seen = self._begun(info)
        seen.dead = places_of_dead(info)
        if seen.error is None:
            try:
                stats, seen.holders = glance(info.place, busy_s=BUSY_S)
                seen.at = self._wall()
                self._measure(seen, stats)
            except (PenstockError, OSError) as error:
                seen.error = str(error)
        if seen.error is not None:
            self._before.pop(info.name, None)
            seen.state = FAILED
        return seen

    def _add_up(self, macro: Seen, seen: dict[str, Seen]) -> None:
        """A macro queue is what its members are together, through the macro queues among them."""
        assert macro.info.macro is not None
        macro.members = macro.info.macro.names
        place, absent = Path(macro.info.place), list[str]()
        try:
            leaves = [seen[leaf.name] for leaf in members_of(place, absent=absent) if leaf.name in seen]
        except (PenstockError, OSError) as error:
            macro.error, macro.state = str(error), FAILED
            return
        working = [leaf.info.name for leaf in leaves if leaf.stats is not None]
        errors = [str(not_there(place.parent / name)) for name in absent]
        errors += [leaf.error for leaf in leaves if leaf.error is not None]
        if self._added.get(macro.info.name) != working:  # what others had done before was not done since the last look
            self._added[macro.info.name] = working
            self._before.pop(macro.info.name, None)
        if errors and not working:
            macro.error, macro.state = errors[0], FAILED
            return
        macro.dead = sorted({place for leaf in leaves for place in leaf.dead})
        macro.holders = sum(leaf.holders for leaf in leaves)
        known = [leaf.stats for leaf in leaves if leaf.stats is not None]
        self._measure(macro, combined(known, path=macro.info.place, uuid=macro.info.uuid or ""))

    def _measure(self, seen: Seen, stats: Stats) -> None:
        now_s = self._monotonic()
        before_s, before = self._before.get(seen.info.name, (now_s, stats))
        self._before[seen.info.name] = now_s, stats
        seen.stats = stats
        seen.rates = rates_between(before, stats, now_s - before_s)
        if seen.rates:
            seen.delivered_late_s = between(before.lateness, stats.lateness).p99_s


def _tell_dead(seen: dict[str, Seen]) -> None:
    """Mark queues that hold the dead letters of others."""
    places = {each.info.place: each for each in seen.values()}
    for each in seen.values():
        for place in each.dead if not each.members else ():
            if place in places:
                places[place].dead_of.append(each.info.name)


def sample_of(seen: Seen) -> Sample:
    """For plots. A queue that could not be looked at is a gap, one with nothing due is not late."""
    if seen.stats is None:
        return Sample(seen.at, *([NAN] * (len(Sample._fields) - 1)))
    return Sample(
        at=seen.at,
        waiting=seen.stats.waiting,
        pending=seen.stats.pending + seen.stats.claimed,
        puts=seen.rates.get("puts", NAN),
        acks=seen.rates.get("acks", NAN),
        retries=seen.rates.get("retries", NAN),
        oldest_s=seen.oldest_s or 0.0,
        late_s=NAN if seen.delivered_late_s is None else seen.delivered_late_s,
    )
