"""The figures of several queues together, and those of a manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import QueueManager, Stats
from penstock.manager import ManagerStats, State
from penstock.timequeue import combined
from penstock.timequeue.combining import EARLIEST, MERGED, SUMMED
from penstock.timequeue.measures import RATES, WINDOWS
from tests.conftest import Queues, SimulatedClock


def test_every_figure_has_a_way_to_be_combined() -> None:
    others = {"path", "uuid", "depth_max", "puts_per_sync", "sync_failed", "service_recent_s", "rates", "clients"}
    every = [*SUMMED, *EARLIEST, *MERGED, *others]
    assert sorted(every) == sorted(field.name for field in msgspec.structs.fields(Stats))


def test_figures_combined_are_sums_and_the_distributions_those_of_all(queue: Queues, clock: SimulatedClock) -> None:
    one, other = queue("one"), queue("other", slots=10)
    one.put_many([b"x"] * 3)
    other.put(b"y", delay=5)
    other.put(b"z")
    clock.advance(2)
    one.get(block=False).ack()
    clock.advance(6)
    held = other.get(block=False)
    found = combined([one.stats(), other.stats()], path="both")
    assert (found.path, found.uuid, found.slots) == ("both", "", 74)
    assert (found.puts, found.gets, found.acks, found.waiting, found.pending, found.depth_max) == (5, 2, 1, 3, 1, 3)
    assert (found.waiting_time.count, found.waiting_time.mean_s, found.waiting_time.max_s) == (2, 5.0, 8.0)
    assert found.oldest_due_at == one.stats().oldest_due_at and found.next_due_at is not None
    assert (found.producers, found.consumers, len(found.clients)) == (2, 2, 2)
    assert found.rates["puts"]["15m"] == pytest.approx(
        one.stats().rates["puts"]["15m"] + other.stats().rates["puts"]["15m"], abs=1e-5
    )
    assert found.service_recent_s == one.stats().service_recent_s
    held.ack()


def test_figures_of_one_queue_combined_are_its_own(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put_many([b"x"] * 9, durability="commit")
    for _ in range(5):
        clock.advance(1)
        q.get(block=False).ack()
    stats = q.stats()
    found = combined([stats], path=stats.path, uuid=stats.uuid)
    for field in msgspec.structs.fields(Stats):
        mine, theirs = getattr(found, field.name), getattr(stats, field.name)
        if field.name in MERGED:
            assert mine.mean_s == pytest.approx(theirs.mean_s)
            mine, theirs = (msgspec.structs.replace(each, mean_s=None) for each in (mine, theirs))
        assert mine == theirs, field.name


def test_figures_of_nothing_are_nothing() -> None:
    found = combined([], path="empty")
    assert (found.waiting, found.waiting_time.count, found.next_due_at, found.puts_per_sync) == (0, 0, None, None)
    assert found.rates == {name: dict.fromkeys(WINDOWS, 0.0) for name in RATES}


# ---------------------------------------------------------------- of a manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[QueueManager]:
    with QueueManager(tmp_path) as made:
        made.set_defaults(data_bytes=64 << 10, durability="relaxed", depth=50)
        for name in ("orders", "mail", "audit"):
            made.create(name)
        yield made


def test_a_manager_s_figures_are_those_of_its_queues_and_their_total(manager: QueueManager) -> None:
    with manager.open("orders") as orders, manager.open("mail") as mail:
        orders.put_many([b"x"] * 4)
        mail.put_many([b"y"] * 2)
        orders.get().ack()
        found = manager.stats()
        assert isinstance(found, ManagerStats) and found.root == str(manager.root)
        assert list(found.queues) == ["audit", "mail", "orders"]
        assert (found.kinds, found.states) == ({"queue": 3}, {"open": 2, "configured": 1})
        figures = found.queues["orders"]
        assert (figures.state, figures.active, figures.error) == (State.OPEN, True, None)
        assert figures.stats is not None and (figures.stats.puts, figures.stats.waiting) == (4, 3)
        assert (found.total.puts, found.total.waiting, found.total.slots) == (6, 5, 150)
        assert (found.total.producers, found.total.consumers) == (2, 1)
        assert len(found.total.clients) == 2, "who looks is not counted"


def test_a_queue_that_cannot_be_looked_at_has_its_error_in_the_figures(manager: QueueManager) -> None:
    (manager.root / "mail" / "kernel").write_bytes(b"")
    (manager.root / "audit" / "queue.json").write_bytes(b"{")
    found = manager.stats()
    assert found.states == {"configured": 1, "failed": 2}
    for name, file in (("mail", "kernel"), ("audit", "queue.json")):
        figures = found.queues[name]
        assert figures.stats is None and figures.error is not None and file in figures.error
    assert found.total.slots == 50


def test_a_principal_sees_the_figures_of_what_it_may_browse(manager: QueueManager) -> None:
    manager.grant("mail", "ma*", ["browse"])
    manager.grant("mail", "orders", ["produce"])
    assert list(manager.as_principal("mail").stats().queues) == ["mail"]
    assert manager.as_principal("nobody").stats().total.slots == 0


def test_looking_at_a_root_leaves_nothing_behind(tmp_path: Path) -> None:
    penstock.create(tmp_path / "orders", slots=10, data_bytes=1 << 16).close()
    before = sorted(tmp_path.rglob("*"))
    with QueueManager(tmp_path) as manager:
        manager.stats()
    assert sorted(tmp_path.rglob("*")) == before


def test_the_figures_of_a_macro_queue_are_those_of_its_members_and_not_in_the_total(manager: QueueManager) -> None:
    manager.create_macro("both", ["orders", "mail"])
    with manager.open("orders") as orders, manager.open("mail") as mail:
        orders.put_many([b"x"] * 4)
        mail.put(b"y")
        found = manager.stats()
    both = found.queues["both"].stats
    assert both is not None and (both.waiting, both.slots) == (5, 100)
    assert (found.total.waiting, found.total.slots) == (5, 150)
