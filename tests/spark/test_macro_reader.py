"""The stream reader of macro queues, called as Spark calls it but without Spark: claims over members, exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import ClaimLost, Misuse, QueueInactive, QueueNotFound, ReceiverBusy
from penstock.store import gather as G
from penstock.store import layout as L
from tests.conftest import Queues

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from penstock.spark import finding, many
from penstock.spark.shares import shares
from penstock.timequeue.claims import Receiver

NAMES = ("a", "b", "c")


class Macro:
    """Some queues and the macro queue of them."""

    def __init__(self, queue: Queues, root: Path, **options: Any) -> None:
        self.manager = penstock.QueueManager(root)
        self.queues = {name: queue(name) for name in NAMES}
        self.manager.create_macro("all", list(NAMES), **options)
        self.path = root / "all"

    def fill(self, count: int = 4) -> list[bytes]:
        bodies = {name: [b"%s%d" % (name.encode(), i) for i in range(count)] for name in self.queues}
        for name, some in bodies.items():
            self.queues[name].put_many(some)
        return sorted(body for some in bodies.values() for body in some)

    def left(self) -> tuple[int, int, int]:
        """What is there at all, in claims, and claims."""
        every = self.queues.values()
        return (
            sum(q.qsize() + q.stats().claimed for q in every),
            sum(q.stats().claimed for q in every),
            sum(len(q.claims()) for q in every),
        )


@pytest.fixture
def macro(queue: Queues, tmp_path: Path) -> Callable[..., Macro]:
    return lambda **options: Macro(queue, tmp_path, **options)


def all_of(query: Any) -> list[list[bytes]]:
    """All batches, until there are none."""
    found = []
    while (bodies := query.batch()) is not None:
        found.append(bodies)
    return found


def test_a_batch_has_a_claim_of_each_member_and_a_partition_for_it(macro: Any, queries: Any) -> None:
    some = macro()
    bodies = some.fill(4)
    query = queries(some)
    assert query.batch() == []  # who the members are is logged before anything is claimed
    start, end = query.start(), query.latest()
    parts = query.reader.partitions(start, end)
    assert sorted(part.place.path for part in parts) == [str(some.queues[name].path) for name in NAMES]
    rows = query.rows(start, end)
    assert sorted(row["body"] for row in rows) == bodies
    assert {row["queue"] for row in rows} == {str(q.path) for q in some.queues.values()}
    assert sorted(query.batch() or []) == bodies
    assert query.batch() is None and some.left() == (0, 0, 0)


def test_members_without_messages_cost_no_partition(macro: Any, queries: Any) -> None:
    some = macro()
    some.queues["b"].put(b"only")
    query = queries(some, partitions=3)
    query.batch()
    assert len(query.reader.partitions(query.start(), query.latest())) == 1
    assert query.batch() == [b"only"]


def test_partitions_are_shared_out_by_messages(macro: Any, queries: Any) -> None:
    some = macro()
    some.queues["a"].put_many([b"a"] * 9)
    some.queues["b"].put_many([b"b"] * 3)
    query = queries(some, partitions=4)
    query.batch()
    parts = query.reader.partitions(query.start(), query.latest())
    assert sorted(Path(part.place.path).name for part in parts) == ["a", "a", "a", "b"]


def test_offsets_are_the_same_text_each_time(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(3)
    query = queries(some)
    query.batch()
    text = json.dumps(query.latest())
    assert text == json.dumps(query.latest())
    query.die()
    again = queries(some, query.log)
    assert json.dumps(again.latest()) == text
    assert list(json.loads(text)) == ["macro", "receiver", "members"]


# ---------------------------------------------------------------- limits


def test_limits_are_over_all_members_together(macro: Any, queries: Any) -> None:
    some = macro()
    bodies = some.fill(4)
    query = queries(some, maxRows=5)
    found = all_of(query)
    assert [len(batch) for batch in found] == [0, 5, 5, 2]
    assert sorted(body for batch in found for body in batch) == bodies and some.left() == (0, 0, 0)


def test_bytes_are_over_all_members_together(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    some.queues["b"].put(b"x" * (5 * L.UNIT_BYTES), priority=9)
    query = queries(some, maxBytes=3 * L.UNIT_BYTES)
    query.batch()
    assert sorted(query.batch() or []) == [b"a0", b"a1", b"c0"]  # the large one does not fit between them
    assert len(query.batch() or []) == 1
    query.die()
    query = queries(some, query.log)
    assert len(query.batch(ReadMaxBytes(1)) or []) == 1
    assert len(query.batch(ReadAllAvailable()) or []) > 1
    assert query.batch() is None and some.left() == (0, 0, 0)


def test_min_rows_count_all_members(macro: Any, queries: Any) -> None:
    some = macro()
    some.queues["a"].put(b"1")
    some.queues["b"].put(b"2")
    query = queries(some, minRows=3, maxDelay=3600)
    assert [query.batch(), query.batch()] == [[], None] and some.left()[1] == 0
    some.queues["c"].put(b"3")
    assert sorted(query.batch() or []) == [b"1", b"2", b"3"]


def test_types_are_looked_for_in_every_member(macro: Any, queries: Any) -> None:
    some = macro(consuming="oldest")
    for name, q in some.queues.items():
        q.put(name.encode(), type="wanted")
        q.put(b"other", type="other")
    query = queries(some, types="wanted")
    query.batch()
    assert sorted(query.batch() or []) == [b"a", b"b", b"c"] and query.batch() is None
    assert some.left() == (3, 0, 0)


# ---------------------------------------------------------------- policies


def test_members_of_higher_priority_fill_a_batch_first(macro: Any, queries: Any) -> None:
    some = macro()
    some.manager.configure("all", members=[("a", 1), ("b", 9), ("c", 5)])
    some.fill(4)
    query = queries(some, maxRows=6)
    query.batch()
    assert sorted(query.batch() or []) == [b"b0", b"b1", b"b2", b"b3", b"c0", b"c1"]


def test_message_priorities_count_over_all_members(macro: Any, queries: Any) -> None:
    some = macro(consuming="message-priority")
    some.fill(3)
    for name, q in some.queues.items():
        q.put(b"urgent " + name.encode(), priority=7)
    some.queues["c"].put(b"soon", priority=3)
    query = queries(some, maxRows=4)
    query.batch()
    assert sorted(query.batch() or []) == [b"soon", b"urgent a", b"urgent b", b"urgent c"]


def test_the_oldest_of_all_members_come_first(macro: Any, queries: Any) -> None:
    some = macro(consuming="oldest")
    for i, name in enumerate("cabcab"):
        some.queues[name].put(b"%d" % i, deliver_at=1000.0 + i)
    query = queries(some, maxRows=4)
    query.batch()
    assert sorted(query.batch() or []) == [b"0", b"1", b"2", b"3"]


def test_round_robin_gives_each_member_its_share(macro: Any, queries: Any) -> None:
    some = macro(consuming="round-robin")
    some.queues["a"].put_many([b"a"] * 20)
    some.queues["b"].put_many([b"b"] * 20)
    some.queues["c"].put(b"c")
    query = queries(some, maxRows=9)
    query.batch()
    assert sorted(query.batch() or []) == [b"a"] * 4 + [b"b"] * 4 + [b"c"]


def references(*pairs: tuple[int, int]) -> Any:
    """Of messages with these priorities and times."""
    rows = np.zeros((len(pairs), G.REFERENCE_WORDS), dtype=np.uint64)
    for row, (priority, deliver_us) in zip(rows, pairs, strict=True):
        row[G.F_INFO], row[G.F_DELIVER_US] = priority, deliver_us
    return rows


@pytest.mark.parametrize(
    "consuming, first, expected",
    [
        ("oldest", 0, [(0, 1), (2, 2)]),
        ("message-priority", 0, [(1, 2), (0, 1)]),
        ("round-robin", 0, [(0, 1), (1, 1), (2, 1)]),
        ("round-robin", 2, [(2, 1), (0, 1), (1, 1)]),
    ],
)
def test_shares_are_what_the_policy_would_give_one_after_the_other(
    consuming: str, first: int, expected: list[tuple[int, int]]
) -> None:
    found = [
        references((5, 10), (5, 50), (0, 60)),
        references((9, 70), (5, 45)),
        references((0, 20), (0, 21), (0, 99)),
    ]
    if consuming == "oldest":
        assert shares(consuming, found, 3, first) == expected
    assert sorted(shares(consuming, found, 3, first)) == sorted(expected)
    assert sum(most for _, most in shares(consuming, found, 3, first)) == 3
    assert dict(shares(consuming, found, 100)) == {0: 100, 1: 100, 2: 100}
    assert shares(consuming, [references(), references()], 5) == []


# ---------------------------------------------------------------- claims that nobody logged


def test_a_claim_of_one_member_that_was_never_logged_is_found_again(macro: Any, queries: Any) -> None:
    """Killed between the claims of two members: what was claimed is the next batch, as it is, and then the rest."""
    some = macro()
    bodies = some.fill(2)
    query = queries(some)
    query.batch()
    query.die()
    with some.queues["b"].receiver("r") as receiver:
        receiver.claim(2)
    query = queries(some, query.log)
    assert query.batch() == [b"b0", b"b1"]
    assert sorted(query.batch() or []) == [body for body in bodies if body[:1] != b"b"]
    assert query.batch() is None and some.left() == (0, 0, 0)


def test_claims_of_all_members_that_were_never_logged_are_one_batch_again(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    query = queries(some, maxRows=5)
    query.batch()
    lost = query.latest()
    rows = query.rows(query.start(), lost)
    query.die()
    query = queries(some, query.log)
    assert query.latest() == lost and query.rows(query.start(), lost) == rows and len(rows) == 5
    assert len(query.batch() or []) == 5 and len(query.batch() or []) == 1


def test_a_new_checkpoint_takes_the_open_claims_of_all_members_first(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(4)
    for name in "ab":
        with some.queues[name].receiver("r") as receiver:
            receiver.claim(2)
            receiver.claim(1)
    query = queries(some, maxRows=3)
    found = all_of(query)
    assert [len(batch) for batch in found[:5]] == [0, 2, 3, 1, 3]  # two claims fit together, then one is left
    bodies = [body for batch in found for body in batch]
    assert len(bodies) == len(set(bodies)) == 12 and some.left() == (0, 0, 0)


def test_a_batch_that_was_logged_and_not_finished_has_the_same_rows(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(3)
    query = queries(some, maxRows=5)
    query.batch()
    before, end = query.start(), query.latest()
    rows = query.rows(before, end)
    query.log.append(json.dumps(end))
    query.die()
    query = queries(some, query.log)
    assert query.rows(before, end) == rows and len(rows) == 5
    assert len(query.batch() or []) == 4
    assert query.batch() is None and some.left() == (0, 0, 0)


def test_a_commit_comes_early_or_late_without_harm(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    query = queries(some, maxRows=4)
    query.batch()
    query.batch()
    first = query.start()
    query.reader.commit(first)
    assert [len(q.claims()) for q in some.queues.values()] == [0, 0, 0]
    query.reader.commit(first)
    assert len(query.batch() or []) == 2
    query.reader.commit(first)
    assert sum(len(q.claims()) for q in some.queues.values()) == 1
    assert query.batch() is None


# ---------------------------------------------------------------- who comes and goes


def test_a_member_that_is_added_joins_with_the_next_batch(macro: Any, queries: Any, queue: Queues) -> None:
    some = macro()
    query = queries(some)
    assert [query.batch(), query.batch()] == [[], None]
    late = queue("late")
    late.put(b"late")
    assert query.batch() is None
    some.manager.add_member("all", "late")
    assert [query.batch(), query.batch(), query.batch()] == [[], [b"late"], None]
    assert late.qsize() == 0 and late.claims() == []


def test_a_member_that_is_added_beside_others_at_work_costs_no_batch(macro: Any, queries: Any, queue: Queues) -> None:
    some = macro()
    some.queues["a"].put(b"a")
    query = queries(some)
    query.batch()
    queue("late").put(b"late")
    some.manager.add_member("all", "late")
    assert [query.batch(), query.batch(), query.batch()] == [[b"a"], [b"late"], None]


def test_a_member_that_is_removed_has_its_claims_completed_and_leaves(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    query = queries(some, maxRows=4)
    query.batch()
    assert sorted(query.batch() or []) == [b"a0", b"a1", b"b0", b"b1"]
    query.latest()  # claims what c has, which nobody logs
    some.manager.remove_member("all", "c")
    some.manager.remove_member("all", "b")
    some.queues["b"].put(b"not for it")
    some.queues["c"].put(b"not for it")
    query.die()
    query = queries(some, query.log, maxRows=4)
    assert query.batch() == [b"c0", b"c1"]
    some.queues["a"].put(b"more")
    assert query.batch() == [b"more"]
    assert len(json.loads(query.log[-1])["members"]) == 1
    assert query.batch() is None and some.left() == (2, 0, 0)
    some.queues["c"].receiver("r").close()  # the name is free there


def test_a_member_that_is_removed_between_a_kill_and_the_restart_still_gives_its_first_claim(
    macro: Any, queries: Any
) -> None:
    some = macro()
    some.fill(1)
    query = queries(some)
    query.batch()
    query.latest()
    query.die()
    for name in NAMES[1:]:
        some.manager.remove_member("all", name)
    again = queries(some, query.log)
    assert sorted(again.batch() or []) == [b"a0", b"b0", b"c0"] and again.batch() is None
    assert some.left() == (0, 0, 0)


def test_a_member_that_was_removed_and_destroyed_is_no_reason_to_stop(macro: Any, queries: Any, queue: Queues) -> None:
    some = macro()
    gone = penstock.create(some.path.parent / "gone", slots=16, data_bytes=64 << 10)
    some.manager.add_member("all", "gone")
    gone.put(b"x")
    query = queries(some)
    assert [query.batch(), query.batch()] == [[], [b"x"]]
    query.die()
    gone.close()
    some.manager.remove_member("all", "gone")
    some.manager.destroy("gone")
    some.queues["a"].put(b"a")
    again = queries(some, query.log)
    assert [again.batch(), again.batch()] == [[b"a"], None]
    begin, end = json.loads(query.log[0]), json.loads(query.log[1])
    with pytest.raises(ClaimLost, match="is lost with its queue"):
        again.reader.partitions(begin, end)
    again.die()
    assert queries(some, again.log, onLostClaim="skip").reader.partitions(begin, end) == []


def test_macro_queues_in_macro_queues_are_read_through(macro: Any, queries: Any, tmp_path: Path) -> None:
    some = macro()
    some.manager.create_macro("outer", ["all"])
    bodies = some.fill(2)
    outer = type("Outer", (), {"path": tmp_path / "outer"})
    query = queries(outer)
    query.batch()
    assert sorted(query.batch() or []) == bodies


def test_a_member_is_passed_over_while_it_is_inactive(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(1)
    some.manager.deactivate("b")
    query = queries(some)
    query.batch()
    assert sorted(query.batch() or []) == [b"a0", b"c0"] and query.batch() is None
    some.manager.activate("b")
    assert query.batch() == [b"b0"]
    some.manager.deactivate("all")
    some.fill(1)
    with pytest.raises(QueueInactive, match="all: deactivated"):
        query.batch()


# ---------------------------------------------------------------- members that fail


def test_a_member_that_fails_is_passed_over_and_comes_back(
    macro: Any, queries: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(many, "RETRY_S", 0.0)
    monkeypatch.setattr(finding, "LOOK_S", 0.0)
    some = macro()
    some.fill(1)
    query = queries(some)
    query.batch()
    query.batch()
    query.die()
    home, away = some.queues["b"].path, tmp_path_factory.mktemp("away") / "b"
    home.rename(away)
    query = queries(some, query.log)
    some.queues["a"].put(b"more")
    assert query.batch() == [b"more"]
    assert query.batch() is None and some.left()[:2] == (1, 1)  # what was claimed of b is done with: it will be told
    away.rename(home)
    some.queues["b"].put(b"back")
    assert [query.batch(), query.batch()] == [[b"back"], None]
    assert some.left() == (0, 0, 0)


def test_a_member_whose_claim_fails_half_way_is_passed_over_and_nothing_is_lost(
    macro: Any, queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "RETRY_S", 0.0)
    some = macro()
    bodies = some.fill(2)
    query = queries(some)
    query.batch()
    keep = Receiver._keep

    def failing(self: Receiver, *given: Any) -> Any:
        if self._client.path.name == "b":
            raise OSError("the disk does not answer")
        return keep(self, *given)

    monkeypatch.setattr(Receiver, "_keep", failing)
    assert sorted(query.batch() or []) == [body for body in bodies if body[:1] != b"b"]
    assert query.batch() is None
    monkeypatch.setattr(Receiver, "_keep", keep)
    assert query.batch() == [b"b0", b"b1"]
    assert query.batch() is None and some.left() == (0, 0, 0)


def test_a_logged_batch_is_not_read_without_a_member_that_fails(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(1)
    query = queries(some)
    query.batch()
    begin, end = query.start(), query.latest()
    query.die()
    folder = some.queues["b"].path
    (folder / "queue.json").rename(folder / "aside")
    again = queries(some, [json.dumps(begin)])
    with pytest.raises(penstock.PenstockError):
        again.reader.partitions(begin, end)
    (folder / "aside").rename(folder / "queue.json")
    assert sorted(row["body"] for row in again.rows(begin, end)) == [b"a0", b"b0", b"c0"]


def test_a_query_without_any_member_that_can_be_opened_says_why(macro: Any, queries: Any) -> None:
    some = macro()
    query = queries(some)
    query.batch()
    query.die()
    for q in some.queues.values():
        (q.path / "lock").rename(q.path / "aside")
    again = queries(some, query.log)
    with pytest.raises((penstock.PenstockError, OSError)):
        again.batch()
    for q in some.queues.values():
        (q.path / "aside").rename(q.path / "lock")


# ---------------------------------------------------------------- the rest is as with one queue


def test_available_now_takes_what_was_due_at_the_start_in_all_members(macro: Any, queries: Any, queue: Queues) -> None:
    some = macro(consuming="round-robin")
    bodies = some.fill(2)
    query = queries(some, maxRows=4, minRows=100, maxDelay=3600)
    query.reader.prepareForTriggerAvailableNow()
    some.queues["a"].put(b"later", priority=9)
    queue("late").put(b"late")
    some.manager.add_member("all", "late")
    found = all_of(query)
    assert sorted(body for batch in found for body in batch) == bodies
    assert [len(batch) for batch in found] == [0, 4, 2]
    assert some.left() == (1, 0, 0)


def test_exclusive_keys_are_freed_in_every_member(queue: Queues, queries: Any, tmp_path: Path) -> None:
    for name in "ab":
        q = queue(name, exclusive_keys=True)
        q.put_many([b"%s%d" % (name.encode(), i) for i in range(2)], key="k")
    manager = penstock.QueueManager(tmp_path)
    manager.create_macro("all", ["a", "b"])
    query = queries(type("All", (), {"path": tmp_path / "all"}))
    query.reader.prepareForTriggerAvailableNow()
    found = all_of(query)
    assert [sorted(batch) for batch in found] == [[], [b"a0", b"b0"], [b"a1", b"b1"]]


def test_progress_is_the_sum_of_all_members(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    some.queues["a"].put(b"past", deliver_at=some.queues["a"]._clock.wall_us() / 1e6 - 100)
    some.queues["a"].put(b"later", delay=3600)
    said = queries(some).reader.reportLatestOffset()
    assert 100_000 <= said.pop("oldestDueMs") < 1_000_000
    assert said == {"members": 3, "failed": 0, "due": 7, "waiting": 8}


def test_a_name_is_exclusive_in_each_member(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(1)
    alone = queries(some.queues["b"])
    alone.batch()
    query = queries(some, receiverWait=0.1)
    with pytest.raises(ReceiverBusy, match="/b: receiver 'r' is in use"):
        query.batch()
    query.die()
    alone.die()
    first = queries(some, receiver="x")
    first.batch()
    with pytest.raises(ReceiverBusy):
        queries(some, receiver="x", receiverWait=0.1).batch()


def test_a_checkpoint_of_something_else_is_refused(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(1)
    alone = queries(some.queues["b"], receiver="alone")
    alone.batch()
    with pytest.raises(Misuse, match="not one of a stream from a macro queue"):
        queries(some, alone.log).batch()
    query = queries(some)
    query.batch()
    with pytest.raises(Misuse, match="belongs to receiver 'r', not 'y'"):
        queries(some, query.log, receiver="y").batch()
    with pytest.raises(Misuse, match="not one of a Penstock stream"):
        queries(some.queues["a"], query.log, receiver="z").batch()
    some.manager.create_macro("other", list(NAMES))
    other = type("Other", (), {"path": some.path.parent / "other"})
    with pytest.raises(Misuse, match="belongs to another macro queue"):
        queries(other, query.log).batch()


def test_a_checkpoint_behind_a_member_is_refused_unless_asked_for(macro: Any, queries: Any) -> None:
    some = macro()
    some.fill(2)
    query = queries(some, maxRows=2)
    all_of(query)
    query.die()
    behind = queries(some, query.log[:2])
    some.queues["a"].put_many([b"x", b"y"])
    with some.queues["a"].receiver("r") as receiver:
        made = receiver.claim(1)
        receiver.commit(made.number)
    with pytest.raises(ClaimLost, match=r"claim \d .*is acknowledged"):
        behind.batch()
    behind.die()
    assert queries(some, query.log[:2], onLostClaim="skip").batch() == [b"y"]


def test_the_macro_queue_that_is_gone_is_named(macro: Any, queries: Any) -> None:
    some = macro()
    query = queries(some)
    query.batch()
    some.manager.destroy("all")
    with pytest.raises(QueueNotFound):
        query.batch()
