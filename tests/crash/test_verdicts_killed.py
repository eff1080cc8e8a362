"""Kill -9 at every store and effect of noting verdicts and of committing a claim that has some: the claim is open with
the same messages and the old verdicts or the new, or each of its messages comes to its own end, once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import codec
from penstock.timequeue import check_queue
from penstock.timequeue.answers import REPLIES
from penstock.timequeue.claims import Receiver
from penstock.timequeue.verdicts import Answered, Dead, Failed, Verdict, note
from tests.crash.rig import in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import EACH, IN_FULL, STEPS_MAX

NAME = "query"
OPTIONS = {"slots": 24, "data_bytes": 32 << 10, "spill_bytes": 3000, "dedup_entries": 64, "durability": "relaxed"}
CLAIMED = 7  # in the first claim; one more is in the second
DELAY_S = 1000.0
COMMIT_EVERY = 3 if IN_FULL else 29  # two moves, an answer and some acks: what is passed over in one is hit in another
AGAIN_EVERY = 5  # of these, so often whoever finishes it is killed, too


class Made(NamedTuple):
    """A queue in which somebody asked something, its dead letters, and the ids of its messages by their bodies."""

    saved: list[Snapshot]
    path: Path
    ids: dict[str, str]

    def put_back(self) -> None:
        for snapshot in self.saved:
            snapshot.put_back()

    def verdicts(self) -> list[Verdict]:
        return [
            Failed(self.ids["failed"], "no", DELAY_S),
            Failed(self.ids["last"], "too often"),
            Dead(self.ids["dead"], "poison", "bad"),
            Answered(self.ids["asked"], *codec.encode_body("yes")),
        ]


def opened(path: Path) -> penstock.TimeQueue:
    return penstock.open(path, busy_s=2)


@pytest.fixture
def made() -> Iterator[Made]:
    with tempfile.TemporaryDirectory(prefix="penstock-verdicts-", dir=FAST) as name:
        path = Path(name) / "queue"
        ids: dict[str, str] = {}
        with penstock.create(path, **OPTIONS) as queue:
            ids["first"] = queue.put("first")
            ids["failed"] = queue.put("failed")
            ids["last"] = queue.put("last", max_attempts=1)
            ids["dead"] = queue.put("dead" * 1000)
            ids["acked"] = queue.put("acked" * 1000)
            with pytest.raises(penstock.NoAnswer) as caught:
                queue.put("asked", model="two-way", timeout=0)
            ids["asked"] = str(caught.value.message_id)
            for body in ("plain", "second", "left"):
                ids[body] = queue.put(body)
        penstock.create(path.with_name("queue.dead"), **OPTIONS).close()
        yield Made([Snapshot(path), Snapshot(path.with_name("queue.dead"))], path, ids)


def claimed(made: Made, *verdicts: Verdict) -> Receiver:
    queue = opened(made.path)
    receiver = queue.receiver(NAME)
    assert receiver.claim(CLAIMED).count == CLAIMED and receiver.claim(1)  # type: ignore[union-attr]
    if verdicts:
        note(queue, NAME, verdicts)
    return receiver


def whole(made: Made) -> None:
    for path in (made.path, made.path / REPLIES, made.path.with_name("queue.dead")):
        assert not path.exists() or not check_queue(path), check_queue(path)


def is_open(made: Made) -> bool:
    """Whether the first claim is: what the next receiver finds. If it is not, that has finished it."""
    with opened(made.path) as queue, queue.receiver(NAME) as receiver:
        assert 2 in receiver.claims() and receiver.count(2) == 1
        return 1 in receiver.claims()


def judge(made: Made) -> None:
    """A claim that is still open is committed, as whoever reads it again does; then each message has its end."""
    with opened(made.path) as queue:
        with queue.receiver(NAME) as receiver:
            if 1 in receiver.claims():
                assert receiver.count(1) == CLAIMED and queue.stats().claimed == CLAIMED + 1
                receiver.commit(1)
            assert receiver.claims() == [2] and queue.stats().claimed == 1
        (left, failed) = queue.browse()
        assert (left.body, left.attempts) == ("left", 0)
        assert (failed.id, failed.attempts) == (made.ids["failed"], 1)
        assert DELAY_S - 100 < failed.deliver_us / 1e6 - queue._clock.wall_us() / 1e6 <= DELAY_S
        assert [text for _, text in queue._mine().failures.read(failed.number, failed.slot)] == ["no"]
        stats = queue.stats()
        assert stats.pending == 0 and stats.restores == 0
        with opened(made.path.with_name("queue.dead")) as dead:
            letters = {letter.id: (letter.reason, letter.error, letter.attempts_before) for letter in dead.browse()}
            assert letters == {
                made.ids["last"]: ("max_attempts", "too often", 1),
                made.ids["dead"]: ("poison", "bad", 1),
            }
            assert dead.qsize() == 2 and {len(letter.data) for letter in dead.browse()} == {4, 4000}
        assert queue.answer(made.ids["asked"]).result(20) == "yes"
        assert queue._answers.box().qsize() == 0
        queue.sync_index()
        assert len(list((made.path / "bodies").iterdir())) == 0
    assert {file.name for file in (made.path / "claims" / NAME).iterdir()} <= {"2", "committed", "lock"}
    whole(made)


def steps(every: int, first: int = 1) -> Iterator[int]:
    yield from range(first, STEPS_MAX, every)
    raise AssertionError("it has no end")


# ---------------------------------------------------------------- noting


@pytest.mark.parametrize("before", [False, True])
def test_whoever_is_killed_while_it_notes_the_old_verdicts_count_or_the_new(before: bool, made: Made) -> None:
    old: list[Verdict] = [Failed(made.ids["acked"], "old")] if before else []

    def noted(receiver: Receiver) -> None:
        note(receiver._queue, NAME, made.verdicts())  # type: ignore[arg-type]

    seen: list[int] = []
    for step in steps(1):
        made.put_back()
        died = killed_at(step, noted, lambda: claimed(made, *old))  # type: ignore[arg-type]
        whole(made)
        with opened(made.path) as queue, queue.receiver(NAME) as receiver:
            assert receiver.claims() == [1, 2] and receiver.count(1) == CLAIMED
            count = len(receiver._files.verdicts(1))
            assert count in ({len(old), 4} if died else {4})
            seen.append(count)
            if count == len(old):
                note(queue, NAME, made.verdicts())
        judge(made)
        if not died:
            assert set(seen) == {len(old), 4} and step > 3
            return


# ---------------------------------------------------------------- committing


def commits(receiver: Receiver) -> None:
    receiver.commit(1)
    receiver._queue._moves.settle()  # type: ignore[attr-defined]


def finishes(path: Path) -> None:
    opened(path).receiver(NAME)


def committed_and_died(made: Made) -> None:
    claimed(made, *made.verdicts()).commit(1, later=True)


def test_whoever_is_killed_while_it_commits_each_message_comes_to_its_end_once(made: Made) -> None:
    open_still = done = 0
    for turn, step in enumerate(steps(COMMIT_EVERY)):
        made.put_back()
        died = killed_at(step, commits, lambda: claimed(made, *made.verdicts()))  # type: ignore[arg-type]
        whole(made)
        if turn % AGAIN_EVERY == 0:
            killed_at(1 + step * 7 % 600, finishes, lambda: made.path)  # type: ignore[arg-type]
            whole(made)
        was_open = is_open(made)
        assert died or not was_open
        open_still += was_open
        done += not was_open
        judge(made)
        if not died:
            assert open_still and done > 5
            return


def test_whoever_finishes_a_commit_may_be_killed_too(made: Made) -> None:
    assert in_child(lambda: committed_and_died(made)) == 0
    made = made._replace(saved=[Snapshot(each.path) for each in made.saved])
    for step in steps(COMMIT_EVERY, 3):
        made.put_back()
        died = killed_at(step, finishes, lambda: made.path)  # type: ignore[arg-type]
        whole(made)
        assert not is_open(made)
        judge(made)
        if not died:
            assert step > 100
            return


# ---------------------------------------------------------------- other ends

OTHERS: dict[str, Callable[[Receiver], Any]] = {
    "release": lambda receiver: receiver.release(1),
    "release of the last": lambda receiver: (receiver.release(2), receiver.release(1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_whoever_is_killed_while_it_releases_the_verdicts_go_with_the_claim(name: str, made: Made) -> None:
    for step in steps(2 * EACH + 1):
        made.put_back()
        died = killed_at(step, OTHERS[name], lambda: claimed(made, *made.verdicts()))  # type: ignore[arg-type]
        whole(made)
        with opened(made.path) as queue, queue.receiver(NAME) as receiver:
            if 1 in receiver.claims():
                assert died and receiver._files.judged() == [1] and receiver.count(1) == CLAIMED
            else:
                assert receiver._files.judged() == [] and queue.qsize() >= CLAIMED + 1
            assert queue.qsize() + queue.stats().claimed == CLAIMED + 2
            dead = queue.dead_letters()
            assert dead is not None and dead.qsize() == 0
        if not died:
            return


def test_whoever_is_killed_while_a_receiver_is_forgotten_what_failed_is_there(made: Made) -> None:
    def forgets(queue: penstock.TimeQueue) -> None:
        queue.forget_receiver(NAME)

    def prepare() -> penstock.TimeQueue:
        receiver = claimed(made, *made.verdicts())
        receiver.release(2)
        receiver.commit(1, later=True)
        receiver.close()
        return receiver._queue  # type: ignore[return-value]

    for step in steps(COMMIT_EVERY):
        made.put_back()
        died = killed_at(step, forgets, prepare)
        folder = made.path / "claims" / NAME
        left = {file.name for file in folder.glob("*")}
        assert "1.verdicts" in left or "1" not in left
        with opened(made.path) as queue:
            queue.receiver(NAME).close()
            assert [message.id for message in queue.browse() if message.attempts and message.body == "failed"]
            assert queue.qsize() == 3 and queue.stats().claimed == 0
        whole(made)
        if not died:
            return
