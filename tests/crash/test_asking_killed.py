"""Kill -9 at every store and effect of answering: a reply, an acknowledgement that somebody waits for, a dead letter.
The question is delivered again or has been answered, and whoever asked gets one answer."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import GivenUp, NoAnswer
from penstock.timequeue import check_queue
from penstock.timequeue.answers import REPLIES
from tests.crash.rig import in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, some_of

OPTIONS = {"slots": 24, "data_bytes": 32 << 10, "dedup_entries": 64}
# Each answer is a get, a put with a dedup id and an ack, which are killed at every step elsewhere: it is the order of
# them that counts here. So is a dead letter a move.
ANSWER_EVERY = 3 if IN_FULL else 29
SYNCED_EVERY = 7 if IN_FULL else 83
LETTER_EVERY = 11 if IN_FULL else 61
ASK_EVERY = 5 if IN_FULL else 41


def opened(path: Path) -> penstock.TimeQueue:
    return penstock.open(path, busy_s=2)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-asking-", dir=FAST) as name:
        yield Path(name)


def asked(path: Path, model: str, **options: Any) -> tuple[Snapshot, str]:
    """A queue with a question in it, of an asker that is gone; its id."""
    with penstock.create(path, **{**OPTIONS, **options}) as queue, pytest.raises(NoAnswer) as caught:
        queue.put("?", model=model, timeout=0)
    assert caught.value.message_id is not None
    return Snapshot(path), caught.value.message_id


def replies(queue: penstock.TimeQueue) -> None:
    for message in queue.get_many(5):
        message.reply("yes")


def acknowledges(queue: penstock.TimeQueue) -> None:
    for message in queue.get_many(5):
        message.ack()


def acknowledges_many(queue: penstock.TimeQueue) -> None:
    queue.put("plain")
    queue.ack_many(queue.get_many(5))


def claims(queue: penstock.TimeQueue) -> None:
    """As Spark takes and acknowledges."""
    with queue.receiver("query", wait=5) as receiver:
        for number in receiver.claims():
            receiver.commit(number)
        claim = receiver.claim(5)
        if claim is not None:
            receiver.commit(claim.number)


CASES: dict[str, tuple[str, Callable[[penstock.TimeQueue], None]]] = {
    "a reply": ("two-way", replies),
    "an acknowledged question": ("two-way", acknowledges),
    "a receipt": ("acknowledged", acknowledges),
    "receipts of a batch": ("acknowledged", acknowledges_many),
    "a claim": ("acknowledged", claims),
}


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
@pytest.mark.parametrize("name", CASES)
def test_whoever_is_killed_while_it_answers_the_asker_gets_one_answer(name: str, durability: str, folder: Path) -> None:
    model, work = CASES[name]
    saved, question = asked(folder / "queue", model, durability=durability)
    wanted = {replies: "yes", acknowledges: None}.get(work, question) if model == "two-way" else question
    every = ANSWER_EVERY if durability == "relaxed" else SYNCED_EVERY
    answered_before = 0
    for step in some_of(every):
        saved.put_back()
        died = killed_at(step, work, lambda: opened(saved.path))
        assert not check_queue(saved.path) and not check_queue(saved.path / REPLIES)
        with opened(saved.path) as queue:
            gone = queue.stats().waiting == 0 and not list(queue.browse(state="all"))
            there = queue._answers.box().qsize()
            assert there == 1 or (there == 0 and not gone), "the question is gone, and nobody has answered it"
            answered_before += there and not gone
        assert in_child(lambda: work(opened(saved.path))) == 0
        with opened(saved.path) as queue:
            assert queue.answer(question).result(20) == wanted
            assert queue._answers.box().qsize() == 0 and queue.qsize() == 0, "it was answered twice"
        if not died:
            assert answered_before or not IN_FULL
            return
    raise AssertionError("it has no end")


def fails(queue: penstock.TimeQueue) -> None:
    """A receiver of a question that was delivered too often: it gets none."""
    assert queue.get_many(9) == []
    queue._moves.settle()


def test_whoever_is_killed_while_it_gives_a_question_up_the_asker_is_told_once(folder: Path) -> None:
    saved, question = asked(folder / "queue", "two-way", max_attempts=1, durability="relaxed")
    penstock.create(folder / "queue.dead", **OPTIONS).close()
    assert in_child(lambda: delivered(saved.path)) == 0
    snapshots = [Snapshot(saved.path), Snapshot(folder / "queue.dead")]
    for step in some_of(LETTER_EVERY):
        for each in snapshots:
            each.put_back()
        died = killed_at(step, fails, lambda: opened(saved.path))
        assert in_child(lambda: fails(opened(saved.path))) == 0
        with opened(saved.path) as queue:
            error = queue.answer(question).exception(20)
            assert isinstance(error, GivenUp) and (error.how, error.reason) == ("dead-lettered", "max_attempts")
            assert queue._answers.box().qsize() == 0
            with contextlib.closing(opened(folder / "queue.dead")) as dead:
                assert [letter.id for letter in dead.browse()] == [question]
        if not died:
            return
    raise AssertionError("it has no end")


def delivered(path: Path) -> None:
    assert len(opened(path).get_many(9)) == 1


def test_whoever_is_killed_while_it_asks_the_question_is_there_or_not(folder: Path) -> None:
    """Also while the queue of answers is made."""
    penstock.create(folder / "queue", **OPTIONS, durability="relaxed").close()
    saved = Snapshot(folder / "queue")

    def asks(queue: penstock.TimeQueue) -> None:
        with contextlib.suppress(NoAnswer):
            queue.put("?", model="two-way", timeout=0)

    for step in some_of(ASK_EVERY):
        saved.put_back()
        for left in (*saved.path.glob(REPLIES), *saved.path.glob(f".{REPLIES}.*")):
            remove(left)
        died = killed_at(step, asks, lambda: opened(saved.path))
        assert not check_queue(saved.path)
        with opened(saved.path) as queue:
            assert queue.qsize() in (0, 1)
            handle = queue.put("again", model="two-way", wait=False)
            for message in queue.get_many(2, wait=20):
                message.reply(message.body)
            if not handle.done():
                for message in queue.get_many(2, wait=1):
                    message.reply(message.body)
            assert handle.result(20) == "again"
        if not died:
            return
    raise AssertionError("it has no end")


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
