"""Owns the figures of a root as Prometheus wants them: names, help, types, labels. Looks at each queue when it is
asked, keeps nothing in between, and changes nothing. Needs the extra ``metrics``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

import penstock
from penstock.errors import PenstockError
from penstock.manager import QueueInfo, QueueManager
from penstock.timequeue import Stats
from penstock.timequeue.administration import Glance, glance
from penstock.timequeue.measures import Distribution

# Bounds of histograms: a fixed few of those that queues count by, each four times the one before. 16 µs to 2 days.
BOUNDS_S = [(1 << power) / 1e6 for power in range(4, 38, 2)]
BUSY_S = 1.0  # a queue that is stuck is down; the others are not to wait for it

Gauge = Callable[[Stats, float], float | None]


def _since(then: float | None, now: float) -> float:
    return 0.0 if then is None else max(now - then, 0.0)


# What there is now. None: not known, and left out.
GAUGES: dict[str, tuple[str, Gauge]] = {
    "depth": (
        "Messages that the queue holds: waiting, pending or claimed.",
        lambda s, _: s.waiting + s.pending + s.claimed,
    ),
    "waiting": ("Messages that wait, due or not.", lambda s, _: s.waiting),
    "ready": ("Messages that wait without a delivery time.", lambda s, _: s.ready),
    "timed": ("Messages that wait with a delivery time.", lambda s, _: s.timed),
    "held": ("Messages that wait for others of their exclusive key.", lambda s, _: s.held),
    "pending": ("Messages that receivers have by a lease.", lambda s, _: s.pending),
    "claimed": ("Messages in durable claims, of Spark for instance.", lambda s, _: s.claimed),
    "depth_limit": ("Messages that the queue can hold.", lambda s, _: s.slots),
    "depth_max": ("The most messages that it has held at a time.", lambda s, _: s.depth_max),
    "vacant": ("Messages that there is room for, by their number.", lambda s, _: s.vacant),
    "data_bytes": ("Size of the data files.", lambda s, _: s.data_bytes),
    "used_bytes": ("Bytes of the data files in use.", lambda s, _: s.used_bytes),
    "spilled_bytes": ("Bytes of bodies that are files of their own.", lambda s, _: s.spilled_bytes),
    "oldest_due_seconds": (
        "For how long the message that is due for the longest has been due; 0 if none is.",
        lambda s, now: _since(s.oldest_due_at, now),
    ),
    "late_seconds": (
        "For how long the message that would be delivered next has been due; 0 if none is.",
        lambda s, now: _since(s.late_at, now),
    ),
    "sync_failed": ("1 if a sync to disk has failed: puts are refused.", lambda s, _: float(s.sync_failed is not None)),
}  # fmt: skip

# What has happened since the queue was made, by all its clients.
COUNTERS: dict[str, tuple[str, Callable[[Stats], int]]] = {
    "puts": ("Messages put.", lambda s: s.puts),
    "gets": ("Deliveries.", lambda s: s.gets),
    "acks": ("Messages acknowledged.", lambda s: s.acks),
    "retries": (
        "Messages that came back: released, lease ended, receiver died.",
        lambda s: s.releases + s.expired + s.returned,
    ),
    "dead_letters": ("Messages moved to the dead-letter queue.", lambda s: s.dead_lettered),
    "dropped": ("Messages deleted since they had expired or failed too often.", lambda s: s.dropped),
    "deduplicated": ("Puts of what was there already.", lambda s: s.deduplicated),
    "cancels": ("Messages cancelled.", lambda s: s.cancels),
    "moved_in": ("Messages that came from other queues.", lambda s: s.moved_in),
    "moved_out": ("Messages that went to other queues.", lambda s: s.moved_out),
    "syncs": ("Syncs of the data files for puts.", lambda s: s.syncs),
    "index_syncs": ("Syncs of the index.", lambda s: s.index_syncs),
    "restores": ("Restores after a power loss.", lambda s: s.restores),
}


HISTOGRAMS: dict[str, tuple[str, Callable[[Stats], Distribution]]] = {
    "waiting_seconds": ("From put to the first delivery.", lambda s: s.waiting_time),
    "lateness_seconds": ("From when a message was due to its delivery.", lambda s: s.lateness),
    "service_seconds": ("From delivery to acknowledgement.", lambda s: s.service_time),
}


class QueuesCollector(Collector):
    """All queues of a root, each looked at once for a scrape. One that fails is ``penstock_up`` 0 and nothing else."""

    def __init__(self, root: str | os.PathLike[str], *, clock: Callable[[], float]) -> None:
        self._manager = QueueManager(root, busy_s=BUSY_S)
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        infos = self._manager.list()
        found = {info.name: _look(info) for info in infos if info.macro is None}
        looks = {name: look for name, look in found.items() if look is not None}
        yield _build_info(len(infos))
        yield _labelled("up", "1 if the queue could be looked at.", {name: float(name in looks) for name in found})
        yield _infos(infos)
        yield _members(infos)
        now = self._clock()
        for gauge, (words, value) in GAUGES.items():
            yield _labelled(gauge, words, {name: value(look.stats, now) for name, look in looks.items()})
        clients = {name: sum(each["pid"] != os.getpid() for each in look.stats.clients) for name, look in looks.items()}
        yield _labelled("clients", "Clients that have the queue open.", clients)
        producers = {name: look.stats.producers for name, look in looks.items()}
        yield _labelled("producers", "Clients that have put something, or tried to.", producers)
        consumers = {name: look.stats.consumers for name, look in looks.items()}
        yield _labelled("consumers", "Clients that have looked for messages to get.", consumers)
        holders = {name: look.holders for name, look in looks.items()}
        yield _labelled("holders", "Clients and receivers that have messages.", holders)
        for counter, (words, count) in COUNTERS.items():
            family = CounterMetricFamily(f"penstock_{counter}", words, labels=["queue"])
            for name, look in looks.items():
                family.add_metric([name], count(look.stats))
            yield family
        for histogram, (words, distribution) in HISTOGRAMS.items():
            yield _histogram(histogram, words, {name: distribution(look.stats) for name, look in looks.items()})
        yield _rates({name: look.stats for name, look in looks.items()})


def _look(info: QueueInfo) -> Glance | None:
    if info.error is not None:
        return None
    try:
        return glance(info.place, busy_s=BUSY_S)
    except (PenstockError, OSError):
        return None


def _labelled(name: str, words: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(f"penstock_{name}", words, labels=["queue"])
    for queue, value in values.items():
        if value is not None:
            family.add_metric([queue], value)
    return family


def cumulative(distribution: Distribution) -> list[tuple[str, float]]:
    """What took at most so long, for each bound. Buckets of a queue end at these bounds, or between two of them."""
    found: list[tuple[str, float]] = []
    for bound_s in BOUNDS_S:
        below = sum(count for upper_s, count in distribution.buckets if upper_s <= bound_s)
        found.append((repr(bound_s), below))
    return [*found, ("+Inf", distribution.count)]


def _histogram(name: str, words: str, distributions: Mapping[str, Distribution]) -> Metric:
    family = HistogramMetricFamily(f"penstock_{name}", words, labels=["queue"])
    for queue, each in distributions.items():
        family.add_metric([queue], buckets=cumulative(each), sum_value=each.count * (each.mean_s or 0.0))
    return family


def _rates(stats: Mapping[str, Stats]) -> Metric:
    words = "Events a second as the queue itself has averaged them, over 1s, 1m or 15m."
    family = GaugeMetricFamily("penstock_per_second", words, labels=["queue", "event", "window"])
    for queue, each in stats.items():
        for event, windows in each.rates.items():
            for window, rate in windows.items():
                family.add_metric([queue, event, window], rate)
    return family


def _infos(infos: list[QueueInfo]) -> Metric:
    labels = ["queue", "uuid", "kind", "active"]
    family = GaugeMetricFamily("penstock_queue_info", "Always 1: what the queue is.", labels=labels)
    for info in infos:
        family.add_metric([info.name, info.uuid or "", info.kind, str(info.active).lower()], 1)
    return family


def _members(infos: list[QueueInfo]) -> Metric:
    """The figures of a macro queue are sums over these."""
    words = "Always 1: the queue is a macro queue, and this is a member of it."
    family = GaugeMetricFamily("penstock_macro_member", words, labels=["macro", "queue"])
    for info in infos:
        for name in info.macro.names if info.macro is not None else ():
            family.add_metric([info.name, name], 1)
    return family


def _build_info(queues: int) -> Metric:
    family = GaugeMetricFamily("penstock_queues", "Queues of the root.", labels=["version"])
    family.add_metric([penstock.__version__], queues)
    return family


def registry(root: Path, *, clock: Callable[[], float]) -> Any:
    """A registry with nothing else in it: what this process itself uses says nothing about queues."""
    made = CollectorRegistry(auto_describe=False)
    made.register(QueuesCollector(root, clock=clock))
    return made
