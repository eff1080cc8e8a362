"""The stream reader, called as Spark calls it but without Spark: which claim is next, and what is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.errors import ClaimLost, Corrupt, Misuse, PenstockError, ReceiverBusy
from penstock.store import layout as L
from tests.conftest import Queues

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.spark import PenstockDataSource
from penstock.spark import schema as S
from tests.spark.queries import Query


def wait_for(asked: Callable[[], int], count: int) -> None:
    """What the reader does while tasks run."""
    deadline = time.monotonic() + 10
    while asked() != count:
        assert time.monotonic() < deadline, asked()
        time.sleep(0.005)


def wait_for_claimed(q: Any, count: int) -> None:
    """Messages: what is acknowledged leaves the kernel."""
    wait_for(lambda: q.stats().claimed, count)


def wait_for_claims(q: Any, count: int) -> None:
    wait_for(lambda: len(q.claims()), count)


def filled(queue: Queues, count: int = 10, **options: Any) -> penstock.TimeQueue:
    q = queue(**options)
    q.put_many([b"%d" % i for i in range(count)])
    return q


def test_batches_are_claims_and_all_are_acknowledged_at_the_end(queue: Queues, queries: Any) -> None:
    q = filled(queue, 5)
    query = queries(q, maxRows=2)
    assert [query.batch(), query.batch(), query.batch()] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
    assert len(q.claims()) == 1  # the last batch, until Spark asks again
    wait_for_claimed(q, 1)
    assert query.batch() is None
    assert q.stats().claimed == 0 and q.qsize() == 0
    assert [json.loads(line)["claim"] for line in query.log] == [1, 2, 3]


def test_offsets_are_the_same_text_each_time(queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    query = queries(q)
    text = json.dumps(query.latest())
    assert text == json.dumps(query.latest()) == json.dumps(queries_again(query, q, queries).latest())
    assert list(json.loads(text)) == ["queue", "receiver", "identity", "claim", "messages"]


def queries_again(query: Query, q: Any, queries: Any, **options: Any) -> Query:
    """The same query, restarted with its checkpoint."""
    query.die()
    return queries(q, query.log, **options)


def test_a_checkpoint_of_a_receiver_that_was_forgotten_is_refused(queue: Queues, queries: Any) -> None:
    """Its first claim is done with; that of its successor, which has the same number, is not."""
    q = filled(queue, 1)
    old = queries(q)
    assert old.batch() == [b"0"] and old.batch() is None
    old.die()
    q.forget_receiver("r")
    q.put(b"important")
    new = queries(q)
    assert new.batch() == [b"important"]
    new.die()
    again = queries(q, old.log)
    with pytest.raises(ClaimLost, match=r"claim 1 .*an earlier receiver of this name, which was forgotten since"):
        again.batch()
    again.die()
    assert queries(q, new.log).batch() is None and q.qsize() == 0


def test_a_checkpoint_from_before_identities_is_taken(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q, maxRows=1)
    assert query.batch() == [b"0"]
    offset = json.loads(query.log[-1])
    del offset["identity"]
    query.die()
    assert queries(q, [json.dumps(offset)]).batch() == [b"1"]


def test_the_first_offset_changes_nothing(queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    query = queries(q)
    assert query.reader.initialOffset() == query.reader.initialOffset()
    assert not (q.path / "claims").exists()


def test_a_claim_that_was_never_logged_is_found_again(queue: Queues, queries: Any) -> None:
    q = filled(queue, 5)
    query = queries(q, maxRows=2)
    query.batch()
    lost = query.latest()
    rows = query.rows(query.start(), lost)
    query = queries_again(query, q, queries, maxRows=1)
    assert query.latest() == lost
    assert query.rows(query.start(), lost) == rows and [row["body"] for row in rows] == [b"2", b"3"]
    assert query.batch() == [b"2", b"3"]
    assert query.batch() == [b"4"]


def test_a_batch_that_was_logged_and_not_finished_has_the_same_rows(queue: Queues, queries: Any) -> None:
    q = filled(queue, 5)
    query = queries(q, maxRows=2)
    query.batch()
    before, end = query.start(), query.latest()
    rows = query.rows(before, end)
    query.log.append(json.dumps(end))
    query = queries_again(query, q, queries)
    assert query.rows(before, end) == rows  # Spark asks for partitions first, then goes on
    assert query.batch() == [b"4"]
    assert query.batch() is None and q.stats().claimed == 0


def test_a_new_checkpoint_takes_the_open_claims_first(queue: Queues, queries: Any) -> None:
    q = filled(queue, 6)
    with q.receiver("r") as receiver:
        receiver.claim(1)
        receiver.claim(2)
        receiver.commit(1)
        receiver.claim(1)
    query = queries(q)
    assert [query.batch(), query.batch(), query.batch()] == [[b"1", b"2"], [b"3"], [b"4", b"5"]]
    assert query.batch() is None and q.qsize() == 0 and q.stats().claimed == 0


def test_commit_acknowledges_and_comes_late_without_harm(queue: Queues, queries: Any) -> None:
    q = filled(queue, 4)
    query = queries(q, maxRows=2)
    query.batch()
    first = query.start()
    query.reader.commit(first)
    wait_for_claimed(q, 0)
    assert q.stats().acks == 2
    query.reader.commit(first)
    query.reader.commit(query.reader.initialOffset())
    assert query.batch() == [b"2", b"3"]
    query.reader.commit(first)
    assert q.stats().claimed == 2


def test_an_empty_range_has_no_partitions(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q)
    assert query.reader.partitions(query.start(), query.start()) == []
    query.batch()
    assert query.reader.partitions(query.start(), query.start()) == []


# ---------------------------------------------------------------- limits


def test_limits_are_those_of_the_options_and_of_spark(queue: Queues, queries: Any) -> None:
    q = filled(queue, 20)
    query = queries(q, maxRows=3, maxBytes=2 * L.UNIT_BYTES)
    assert len(query.batch() or []) == 2
    assert len(query.batch(ReadMaxRows(1)) or []) == 1
    assert len(query.batch(ReadMaxBytes(L.UNIT_BYTES)) or []) == 1
    assert len(query.batch(ReadAllAvailable()) or []) == 16


def test_min_rows_are_waited_for_and_not_longer_than_max_delay(queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    query = queries(q, minRows=4, maxDelay=3600)
    assert query.batch() is None and q.stats().claimed == 0
    q.put(b"past", deliver_at=1.5)  # due since 1970
    assert query.batch() == [b"past", b"0", b"1", b"2"]
    q.put(b"now")
    assert query.batch() is None
    query = queries_again(query, q, queries, minRows=4, maxDelay=0)
    assert query.batch() == [b"now"]


def test_min_rows_count_those_that_match(queue: Queues, queries: Any) -> None:
    q = queue()
    q.put_many([b"a"] * 5, type="a")
    q.put_many([b"b"] * 2, type="b")
    query = queries(q, minRows=3, maxDelay=3600, types="b")
    assert query.batch() is None
    q.put(b"b", type="b")
    assert query.batch() == [b"b"] * 3
    q.put(b"b", type="b")
    assert query.batch() is None
    query.die()
    query = queries(q, query.log, minRows=3, maxDelay=0, types="b")
    assert query.batch() == [b"b"] and q.qsize() == 5


# ---------------------------------------------------------------- types and keys


def test_only_some_types_and_keys_are_taken_and_the_others_stay(queue: Queues, queries: Any) -> None:
    q = queue()
    for i in range(24):
        q.put(b"%d" % i, type="abc"[i % 3], key="xy"[i % 2] if i % 3 else None, priority=i % 5)
    some = queries(q, types="b, c", keys='["y"]', receiver="some")
    taken = sorted(int(body) for body in some.batch() or [])
    assert taken == [i for i in range(24) if i % 3 and i % 2]
    assert some.batch() is None
    rest = queries(q, receiver="rest")
    assert sorted(int(body) for body in rest.batch() or []) == [i for i in range(24) if i not in taken]


def test_what_matches_comes_in_the_order_of_delivery_over_many_turns(
    queue: Queues, queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.timequeue.selection.FOUND_A_TURN_MAX", 3)
    monkeypatch.setattr("penstock.timequeue.selection.WALKED_A_TURN_MAX", 4)
    q = queue(slots=256, data_bytes=1 << 20)
    for i in range(100):
        q.put(b"%d" % i, type="ab"[i % 2], priority=i % 3, deliver_at=None if i % 4 else 100.0 + i)
    expected = [m.data for m in q.browse() if m.type == "b"]
    query = queries(q, types="b", maxRows=7)
    found: list[bytes] = []
    while (bodies := query.batch()) is not None:
        assert len(bodies) <= 7
        found += bodies
    assert found == expected


def test_bytes_bound_what_is_chosen_too(queue: Queues, queries: Any) -> None:
    q = queue(spill_bytes=1000)
    for size in (10, 500, 300, 2000, 10, 9000):
        q.put(b"x" * size, type="t")
    query = queries(q, types="t", maxRows=3, maxBytes=3 * L.UNIT_BYTES)
    counts = []
    while (bodies := query.batch()) is not None:
        counts.append(len(bodies))
    assert counts == [1, 1, 2, 2]  # as without a selection


def test_messages_that_come_in_front_of_the_walk_are_found(
    queue: Queues, queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.timequeue.selection.AGAIN_US", 0)
    q = queue()
    q.put(b"held", type="b")
    held = q.get()
    q.put_many([b"a"] * 3, type="a")
    q.put(b"timed", type="a", deliver_at=1000.0)
    query = queries(q, types="b")
    assert query.batch() is None
    q.release(held)
    assert query.batch() == [b"held"]
    q.put(b"past", type="b", deliver_at=1.5)
    assert query.batch() == [b"past"]


def test_what_others_take_meanwhile_is_not_claimed(queue: Queues, queries: Any) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(4)], type="t")
    query = queries(q, types="t", minRows=4, maxRows=4, maxDelay=3600)
    q.put(b"x", type="u", priority=9)
    query.reader._start()
    query.reader._selection.look(4)
    with q.get() as first, q.get() as second:
        assert (first.data, second.data) == (b"x", b"0")
    query.reader._given["minRows"] = 1
    assert query.batch() == [b"1", b"2", b"3"]


# ---------------------------------------------------------------- AvailableNow


def test_available_now_takes_what_was_due_at_the_start(queue: Queues, queries: Any) -> None:
    q = filled(queue, 4)
    q.put(b"due", deliver_at=1.5)
    query = queries(q, maxRows=2, minRows=100, maxDelay=3600)
    query.reader.prepareForTriggerAvailableNow()
    q.put(b"later", priority=9)
    q.put(b"past", deliver_at=1.25)
    bodies = [query.batch(), query.batch(), query.batch(), query.batch()]
    assert bodies == [[b"due", b"0"], [b"1", b"2"], [b"3"], None]
    assert q.stats().claimed == 0 and q.qsize() == 2


def test_available_now_keeps_to_types(queue: Queues, queries: Any) -> None:
    q = queue()
    q.put_many([b"a", b"A"], type="a")
    q.put(b"b", type="b")
    query = queries(q, types="a")
    query.reader.prepareForTriggerAvailableNow()
    q.put(b"new", type="a")
    assert [query.batch(), query.batch()] == [[b"a", b"A"], None]
    assert q.qsize() == 2


@pytest.mark.parametrize("options", [{}, {"types": "t"}], ids=["all", "a type"])
def test_available_now_does_all_of_an_exclusive_key_one_after_the_other(
    queue: Queues, queries: Any, options: dict[str, str]
) -> None:
    q = queue(exclusive_keys=True)
    for n in range(4):
        q.put(b"a%d" % n, type="t", key="a")
    q.put(b"b", type="t", key="b")
    q.put(b"none", type="t")
    q.put(b"due", type="t", key="a", deliver_at=1.5)
    q.put(b"much later", type="t", key="a", delay=3600)
    query = queries(q, **options)
    query.reader.prepareForTriggerAvailableNow()
    q.put(b"new", type="t", key="a")
    found = [query.batch() for _ in range(6)]
    assert sorted(found[0]) in ([b"a0", b"b", b"none"], [b"b", b"due", b"none"])
    rest = [batch[0] for batch in found[1:5]]
    assert sorted([*found[0], *rest]) == [b"a0", b"a1", b"a2", b"a3", b"b", b"due", b"none"]
    assert [body for body in [*found[0], *rest] if body in (b"a0", b"a1", b"a2", b"a3")] == [b"a0", b"a1", b"a2", b"a3"]
    assert found[5] is None
    assert q.stats().claimed == 0 and sorted(m.data for m in q.browse()) == [b"much later", b"new"]


def test_a_key_that_somebody_else_has_is_not_waited_for(queue: Queues, queries: Any) -> None:
    q = queue(exclusive_keys=True)
    q.put_many([b"0", b"1", b"2"], key="a")
    held = q.get(block=False)
    query = queries(q)
    query.reader.prepareForTriggerAvailableNow()
    assert (query.batch() or []) == []
    held.ack()
    assert [query.batch(), query.batch(), query.batch()] == [[b"1"], [b"2"], None]


def test_available_now_claims_the_next_batch_while_one_is_read(queue: Queues, queries: Any) -> None:
    q = filled(queue, 5)
    query = queries(q, maxRows=2)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == [b"0", b"1"]
    wait_for_claims(q, 2)
    wait_for_claimed(q, 4)
    assert query.batch() == [b"2", b"3"]
    wait_for_claimed(q, 3)
    q.put(b"new")
    assert [query.batch(), query.batch()] == [[b"4"], None]
    assert [json.loads(line)["claim"] for line in query.log] == [1, 2, 3]
    assert q.stats().claimed == 0 and [m.data for m in q.browse()] == [b"new"]


def test_asked_again_for_the_same_batch_it_claims_no_further(queue: Queues, queries: Any) -> None:
    q = filled(queue, 9)
    query = queries(q, maxRows=2)
    query.reader.prepareForTriggerAvailableNow()
    assert query.latest() == query.latest() == query.latest()
    assert query.batch() == [b"0", b"1"]
    wait_for_claims(q, 2)
    assert query.latest() == query.latest() == query.latest()
    assert [query.batch() for _ in range(2)] == [[b"2", b"3"], [b"4", b"5"]]


def test_nothing_else_goes_on_before_tasks_read(queue: Queues, queries: Any) -> None:
    """Spark waits for the answers to what it asks until then, and each of them would be late."""
    q = filled(queue, 9)
    query = queries(q, maxRows=2)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == [b"0", b"1"]
    wait_for_claims(q, 2)
    end = query.latest()
    assert query.reader._receiver._behind == [] and q.stats().claimed == 4  # of which two are acknowledged
    query.rows(query.start(), end)
    wait_for_claims(q, 2)
    wait_for_claimed(q, 4)  # two that are read, and two ahead


def test_what_is_acknowledged_leaves_the_kernel_also_if_no_task_comes(queue: Queues, queries: Any) -> None:
    q = filled(queue, 4)
    query = queries(q, maxRows=2)
    assert query.batch() == [b"0", b"1"]
    assert query.latest()["claim"] == 2 and q.stats().claimed == 4
    query.die()
    assert q.stats().claimed == 2


def test_what_was_claimed_ahead_is_found_again_by_the_query_that_comes_next(queue: Queues, queries: Any) -> None:
    q = filled(queue, 6)
    query = queries(q, maxRows=2)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == [b"0", b"1"]
    wait_for_claims(q, 2)
    query.die()
    again = queries(q, query.log, maxRows=3)
    assert [again.batch(), again.batch(), again.batch()] == [[b"2", b"3"], [b"4", b"5"], None]
    assert q.stats().claimed == 0 and q.qsize() == 0


def test_a_query_that_goes_on_claims_nothing_ahead(queue: Queues, queries: Any) -> None:
    q = filled(queue, 6)
    query = queries(q, maxRows=2)
    assert query.batch() == [b"0", b"1"] and query.batch() == [b"2", b"3"]
    query.die()  # by then all that goes on beside it is done
    assert len(q.claims()) == 1 and q.qsize() == 2


# ---------------------------------------------------------------- who may


def test_a_second_query_of_the_name_is_refused_and_another_name_is_not(queue: Queues, queries: Any) -> None:
    q = filled(queue, 4)
    first = queries(q, maxRows=2)
    first.batch()
    second = queries(q, receiverWait=0.1)
    with pytest.raises(ReceiverBusy, match="receiver 'r' is in use"):
        second.batch()
    other = queries(q, receiver="other")
    assert other.batch() == [b"2", b"3"]
    first.die()
    assert second.batch() == [b"0", b"1"]


def test_queries_and_a_plain_consumer_share(queue: Queues, queries: Any) -> None:
    q = filled(queue, 30)
    one, two = queries(q, receiver="one", maxRows=4), queries(q, receiver="two", maxRows=3)
    found = []
    while q.qsize():
        found += (one.batch() or []) + (two.batch() or [])
        for message in q.get_many(2):
            found.append(message.data)
            q.ack(message)
    one.batch(), two.batch()
    assert sorted(found, key=int) == [b"%d" % i for i in range(30)]
    assert q.stats().claimed == 0


def test_idle_polls_touch_no_file(queue: Queues, queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    q = filled(queue, 2)
    q.put(b"later", delay=3600)
    query = queries(q)
    query.batch(), query.batch()
    syncs = q.stats().index_syncs, q.stats().syncs

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a file was touched")

    for name in ("open", "listdir", "stat", "fsync", "fdatasync", "rename"):
        monkeypatch.setattr(os, name, never)
    for _ in range(100):
        assert query.batch() is None
    monkeypatch.undo()
    assert (q.stats().index_syncs, q.stats().syncs) == syncs


def test_progress_tells_of_the_backlog(queue: Queues, queries: Any) -> None:
    q = filled(queue, 5)
    q.put(b"past", deliver_at=q._clock.wall_us() / 1e6 - 100)
    q.put(b"later", delay=3600)
    query = queries(q, maxRows=2)
    said = query.reader.reportLatestOffset()
    assert (said["claim"], said["due"], said["waiting"]) == (0, 6, 7) and 100_000 <= said["oldestDueMs"] < 1_000_000
    while query.batch():
        pass
    said = query.reader.reportLatestOffset()
    assert said == {"claim": 3, "due": 0, "waiting": 1, "oldestDueMs": 0}


def test_due_messages_are_counted_over_many_turns(queue: Queues, queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.timequeue.backlogs.LOOKED_A_TURN_MAX", 3)
    q = queue()
    for i in range(20):
        q.put(b"x", deliver_at=100.0 + i % 4, priority=i % 2)
    q.put(b"later", delay=3600)
    receiver = queries(q).reader._start()
    assert receiver.backlog().due == 20
    assert receiver.backlog(enough=7).due == 7


# ---------------------------------------------------------------- checkpoint and queue disagree


def test_a_checkpoint_of_another_queue_or_receiver_is_refused(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    other = filled(queue, 2, name="other")
    query = queries(q)
    query.batch()
    with pytest.raises(Misuse, match=r"belongs to another queue .* new checkpoint"):
        queries(other, query.log).batch()
    with pytest.raises(Misuse, match="belongs to receiver 'r', not 'x'"):
        queries(q, query.log, receiver="x").batch()
    with pytest.raises(Misuse, match="not one of a Penstock stream"):
        queries(q, ['{"0": 17}'], receiver="x").batch()


def test_a_checkpoint_behind_the_queue_is_refused_unless_asked_for(queue: Queues, queries: Any) -> None:
    q = filled(queue, 6)
    query = queries(q, maxRows=2)
    while query.batch():
        pass
    for kept in (1, 2):  # what a power loss leaves of Spark's log
        query.die()
        query = queries(q, query.log[:kept])
        with pytest.raises(ClaimLost, match=r"claim \d .*is acknowledged.*up to 3.*new checkpoint.*onLostClaim=skip"):
            query.batch()
    q.put(b"next")
    skipping = queries_again(query, q, queries, onLostClaim="skip")
    assert skipping.batch() == [b"next"]


def test_a_batch_that_is_run_again_though_it_was_acknowledged_is_refused(queue: Queues, queries: Any) -> None:
    """Spark's commit log lost its last entry: it runs the batch again."""
    q = filled(queue, 2)
    query = queries(q)
    query.batch()
    query.batch()
    begin, end = query.reader.initialOffset(), query.start()
    query = queries_again(query, q, queries)
    with pytest.raises(ClaimLost, match="claim 1 of receiver 'r' is acknowledged"):
        query.reader.partitions(begin, end)
    query = queries_again(query, q, queries, onLostClaim="skip")
    assert query.reader.partitions(begin, end) == []


def test_a_claim_the_queue_never_made_is_refused_also_when_skipping(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q)
    query.batch()
    for change in ({"claim": 7}, {"messages": 1}):
        log = [json.dumps(json.loads(query.log[0]) | change)]
        for option in ("fail", "skip"):
            query.die()
            other = queries(q, log, onLostClaim=option)
            with pytest.raises(ClaimLost, match="not the one that the checkpoint knew"):
                other.batch()
            with pytest.raises(ClaimLost, match="not the one that the checkpoint knew"):
                other.rows(other.reader.initialOffset(), other.start())
            other.die()


def test_a_checkpoint_that_passes_over_open_claims_is_refused(queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    with q.receiver("r") as receiver:
        for _ in range(3):
            receiver.claim(1)
    query = queries(q)
    ahead = json.dumps({**query.reader.initialOffset(), "claim": 3, "messages": 1})
    with pytest.raises(ClaimLost, match=r"open ones that this checkpoint does not know: \[1, 2\]"):
        query.rows(query.start(), json.loads(ahead))
    query.log.append(ahead)
    with pytest.raises(ClaimLost, match=r"open ones that this checkpoint does not know: \[1, 2\]"):
        query.batch()
    assert q.stats().claimed == 3


def test_a_new_checkpoint_knows_where_it_began(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q)
    query.batch(), query.batch()
    query.die()
    fresh = queries(q)
    assert fresh.batch() == [] and json.loads(fresh.log[0])["claim"] == 1
    assert fresh.batch() is None
    q.put(b"next")
    fresh.die()
    other = queries(q)
    assert other.batch() == [b"next"] and other.batch() is None
    other.die()
    with pytest.raises(ClaimLost, match="another query had this name"):
        queries(q, fresh.log).batch()


# ---------------------------------------------------------------- claims that others release


def test_a_released_claim_stops_the_query_that_comes_back(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q)
    begin = query.start()
    query.batch()
    query.die()
    with q.receiver("r") as receiver:
        receiver.release(1)
    back = queries(q, query.log)
    with pytest.raises(ClaimLost, match="was released, by an operator or after its claimTimeout"):
        back.batch()
    with pytest.raises(ClaimLost, match="was released"):
        back.rows(begin, back.start())
    back = queries_again(back, q, queries, onLostClaim="skip")
    assert back.batch() == [b"0", b"1"] and json.loads(back.log[-1])["claim"] == 2


def test_a_claim_timeout_lets_anybody_release_once_the_query_is_gone(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    query = queries(q, claimTimeout=0.05)
    query.batch()
    with pytest.raises(penstock.QueueEmpty):
        q.get(timeout=0.3)  # it is there
    query.die()
    assert {q.get(timeout=30).data, q.get(timeout=30).data} == {b"0", b"1"}
    back = queries(q, query.log)
    with pytest.raises(ClaimLost, match="was released"):
        back.batch()


def test_without_a_claim_timeout_nobody_releases(queue: Queues, queries: Any) -> None:
    q = filled(queue, 2)
    for timeout in (0.01, 0):
        query = queries(q, claimTimeout=timeout)
        query.batch()
        if timeout:
            assert q.receivers()[0].timeout_s == 0.01
        query.die()
        query.log.clear()
        if timeout:
            assert q.get(timeout=30).data == b"0" and q.get(timeout=30).data == b"1"
            q.put_many([b"2", b"3"])
    with pytest.raises(penstock.QueueEmpty):
        q.get(timeout=0.5)


# ---------------------------------------------------------------- what is missing or damaged


@pytest.mark.damages
@pytest.mark.parametrize("option", ["fail", "skip"])
def test_a_damaged_record_of_a_claim_is_an_error_always(option: str, queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    query = queries(q, onLostClaim=option)
    begin, end = query.start(), query.latest()
    with open(q.path / "data.0", "r+b") as file:
        file.seek(L.UNIT_BYTES + L.RECORD_BYTES)  # the body of the second
        file.write(b"?")
    with pytest.raises(Corrupt, match="record of message 2"):
        query.rows(begin, end)


def test_a_message_that_left_its_claim_is_an_error_unless_skipped(queue: Queues, queries: Any) -> None:
    q = filled(queue, 3)
    query = queries(q)
    begin, end = query.start(), query.latest()
    partitions = query.reader.partitions(begin, end)
    query.die()
    with q.receiver("r") as receiver:
        receiver.commit(1)
    for _ in range(70):  # over their records
        q.put(b"x" * 700)
        q.ack(q.get())
        q.sync_index()
    with pytest.raises(PenstockError, match=r"was claimed and is not in the queue any more.*onLostClaim=skip"):
        list(query.reader.read(partitions[0]))
    skipping = queries(q, onLostClaim="skip")
    assert sum(batch.num_rows for batch in skipping.reader.read(partitions[0])) == 0


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    "options, words",
    [
        ({"receiver": ""}, "option receiver: a receiver's name has 1 to 64 letters"),
        ({"receiver": "a/b"}, "letters, digits, dots"),
        ({"maxRows": 0}, "option maxRows must be a whole number from 1"),
        ({"types": "[1]"}, "option types must be names"),
        ({"claimTimeout": -1}, "option claimTimeout must be a number of seconds"),
        ({"onLostClaim": "ignore"}, "option onLostClaim must be one of fail, skip"),
        ({"state": "all"}, "option state is for read only; the options for a stream read are path, root, queue, part"),
        ({"pushFilters": "true"}, "option pushFilters is for read only"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], words: str, queue: Queues) -> None:
    with pytest.raises(Misuse) as caught:
        Query(queue().path, **options)
    assert words in str(caught.value)


def test_a_stream_needs_a_receiver(queue: Queues) -> None:
    with pytest.raises(Misuse, match="option receiver is missing"):
        PenstockDataSource({"path": str(queue().path)}).streamReader(S.COLUMNS)
