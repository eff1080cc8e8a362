"""Verdicts on messages of a claim: what becomes of each kind, who may note them, and what a release, a second receiver
or a restore makes of them."""

from __future__ import annotations

import os
import signal
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import codec
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.claimfiles import ClaimFiles
from penstock.store.gather import F_INFO, REFERENCE_WORDS
from penstock.store.verdictfiles import KeptFailed
from penstock.timequeue import check_queue, resize_queue, restore_queue
from penstock.timequeue.receivers import release_overdue
from penstock.timequeue.verdicts import Answered, Dead, Failed, Verdict, note
from tests.conftest import Queues, SimulatedClock
from tests.crash.rig import in_child
from tests.snapshot import overwrite


@pytest.fixture
def queues(queue: Queues) -> Queues:
    """Under a name that leaves the other to the queue."""
    return queue


def filled(queues: Queues, count: int = 6, **options: object) -> tuple[penstock.TimeQueue, list[str]]:
    queue = queues(**options)
    return queue, list(queue.put_many([b"%d" % i for i in range(count)]))


def commit(queue: penstock.TimeQueue, *verdicts: Verdict, most: int = 100) -> None:
    """Claim what is due, and be done with it."""
    with queue.receiver("r") as receiver:
        claim = receiver.claim(most)
        assert claim is not None
        note(queue, "r", verdicts)
        receiver.commit(claim.number)
    assert queue.stats().claimed == queue.stats().pending == 0


def waiting(queue: penstock.TimeQueue) -> list[tuple[bytes, int]]:
    return [(message.data, message.attempts) for message in queue.browse()]


def letters(queue: penstock.TimeQueue) -> list[tuple[bytes, str | None, str | None, int]]:
    dead = queue.dead_letters()
    found = dead.browse() if dead is not None else ()
    return [(letter.data, letter.reason, letter.error, letter.attempts_before) for letter in found]


def ask(queue: penstock.TimeQueue, body: str, model: str = "two-way", **options: object) -> str:
    """A question whose asker does not wait; its id."""
    with pytest.raises(penstock.NoAnswer) as caught:
        queue.put(body, model=model, timeout=0, **options)  # type: ignore[call-overload]
    assert caught.value.message_id is not None
    return caught.value.message_id


def left(queue: penstock.TimeQueue) -> set[str]:
    """Files of the receiver that are about claims."""
    return set(os.listdir(queue.path / "claims" / "r")) - {"lock", "committed"}


# ---------------------------------------------------------------- what becomes of them


def test_one_that_failed_waits_with_its_attempt_and_the_others_are_acknowledged(queues: Queues) -> None:
    queue, ids = filled(queues)
    commit(queue, Failed(ids[1], "no"), Failed(ids[4]))
    assert waiting(queue) == [(b"1", 1), (b"4", 1)]
    stats = queue.stats()
    assert (stats.acks, stats.releases) == (4, 2)
    assert left(queue) == set()  # a restore would have claimed them again
    commit(queue)
    assert waiting(queue) == []


def test_one_that_failed_waits_for_as_long_as_the_backoff_says_or_its_delay(
    queues: Queues, clock: SimulatedClock
) -> None:
    queue, ids = filled(queues, backoff=penstock.Backoff(10, 2.0))
    own = queue.put(b"own", backoff=penstock.Backoff(50))
    commit(queue, Failed(ids[0]), Failed(ids[1], delay_s=30), Failed(ids[2], delay_s=0), Failed(own))
    due = {message.data: message.deliver_us / 1e6 - clock.now_s for message in queue.browse()}
    assert due == {b"0": 10, b"1": 30, b"2": pytest.approx(0), b"own": 50}
    clock.advance(11)
    commit(queue, Failed(ids[0]))  # with what was not to wait
    assert {message.data: message.deliver_us / 1e6 - clock.now_s for message in queue.browse()} == {
        b"0": 20,
        b"1": 19,
        b"own": 39,
    }


def test_past_its_last_attempt_it_is_a_dead_letter_with_its_errors(queues: Queues) -> None:
    queue, ids = filled(queues, 2, max_attempts=2)
    own = queue.put(b"own", max_attempts=1)
    commit(queue, Failed(ids[0], "first"), Failed(own, "at once"))
    assert waiting(queue) == [(b"0", 1)] and letters(queue) == [(b"own", "max_attempts", "at once", 1)]
    commit(queue, Failed(ids[0], "second"))
    assert waiting(queue) == [] and letters(queue)[1:] == [(b"0", "max_attempts", "second", 2)]
    dead = queue.dead_letters()
    assert dead is not None
    assert [text for _, text in list(dead.browse())[1].history] == ["first", "second"]
    assert queue.stats().dead_lettered == 2
    assert not list((queue.path / "failures").iterdir())


def test_a_dead_one_is_a_dead_letter_at_once(queues: Queues) -> None:
    queue, ids = filled(queues, spill_bytes=3000)
    large = queue.put(b"x" * 9000)
    commit(queue, Dead(ids[2], "poison", "KeyError"), Dead(large, "expired"))
    assert letters(queue) == [(b"2", "poison", "KeyError", 1), (b"x" * 9000, "expired", None, 1)]
    assert waiting(queue) == [] and queue.stats().acks == 5
    assert queue.redrive() == 2
    commit(queue, Dead(ids[2], "again"))  # by the id that it has kept, in another place
    assert [letter[1] for letter in letters(queue)] == ["again"]


def test_dead_letters_that_are_deleted_are_gone(queues: Queues) -> None:
    queue, ids = filled(queues, dead_letter="delete")
    commit(queue, Dead(ids[2], "poison"), Failed(ids[3]))
    assert waiting(queue) == [(b"3", 1)] and queue.stats().dropped == 1


def test_a_full_dead_letter_queue_parks_it_and_keeps_nobody(queues: Queues, clock: SimulatedClock) -> None:
    queue, ids = filled(queues, 5)
    with queues("queue.dead", slots=1) as dead:
        dead.put(b"full")
    commit(queue, Dead(ids[1], "poison"), Failed(ids[2]))
    assert waiting(queue) == [(b"2", 1), (b"1", 1)] and queue.stats().parked == 1
    assert not queue._mine().begun.any()
    clock.advance(61)
    commit(queue)
    assert waiting(queue) == []


def test_an_answer_is_the_reply_of_whoever_asked(queues: Queues) -> None:
    queue = queues()
    ids = [ask(queue, f"{i}?") for i in range(4)]
    told = ask(queue, "told", "acknowledged")
    with queue.receiver("r") as receiver:
        assert receiver.claim(9)
        answers = [Answered(ids[0], *codec.encode_body({"a": 1})), Answered(ids[1], *codec.encode_body(b"\xff"))]
        note(queue, "r", [*answers, Failed(ids[3], "later")])
        assert queue._answers.box().qsize() == 0
        receiver.commit(1)
    assert queue.answer(ids[0]).result(5) == {"a": 1} and queue.answer(ids[1]).result(5) == b"\xff"
    assert queue.answer(ids[2]).result(5) is None and queue.answer(told).result(5) == told
    assert queue._answers.box().qsize() == 0
    commit(queue, Answered(ids[3], *codec.encode_body("now")))
    assert queue.answer(ids[3]).result(5) == "now"
    assert waiting(queue) == [] and queue.stats().acks == 5


def test_a_reply_that_never_fits_where_it_was_asked_keeps_nobody(queues: Queues) -> None:
    """One that was moved here, from where there is little room."""
    small, queue = queues("small", data_bytes=64 << 10), queues(data_bytes=8 << 20)
    question, other = ask(small, "?"), ask(small, "??")
    for message in small.get_many(2):
        small.move(message, to=queue.path)
    size = 1 << 20  # more than all answers may have there
    commit(queue, Answered(question, codec.CODEC_BYTES, b"x" * size), Answered(other, codec.CODEC_BYTES, b"yes"))
    error = small.answer(question).exception(5)
    assert isinstance(error, penstock.GivenUp) and error.how == "dropped"
    assert small.answer(other).result(5) == b"yes"


def test_whoever_asked_is_told_of_a_dead_letter(queues: Queues) -> None:
    queue = queues()
    question = ask(queue, "?")
    commit(queue, Dead(question, "poison"))
    error = queue.answer(question).exception(5)
    assert isinstance(error, penstock.GivenUp) and (error.how, error.reason) == ("dead-lettered", "poison")


def test_one_that_failed_frees_its_key(queues: Queues) -> None:
    queue = queues(exclusive_keys=True)
    first = queue.put(b"a1", key="a")
    queue.put(b"a2", key="a")
    queue.put(b"b1", key="b")
    with queue.receiver("r") as receiver:
        assert receiver.claim(9).count == 2  # type: ignore[union-attr]
        note(queue, "r", [Failed(first, delay_s=100)])
        assert queue.get_many(9) == []
        receiver.commit(1)
    assert [message.data for message in queue.get_many(9)] == [b"a2"]


# ---------------------------------------------------------------- noting


def test_the_last_note_counts(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        before = receiver.claim(4)
        assert before is not None and receiver.claim(1)
        note(queue, "r", [Failed(ids[0]), Failed(ids[4])])
        note(queue, "r", [Failed(ids[1])])
        assert receiver.references(1) == before.references
        receiver.commit(2)
        assert waiting(queue) == [(b"1", 1), (b"4", 1), (b"5", 0)]


def test_nothing_takes_the_place_of_what_was_noted(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        for count in (2, 2, 2):
            assert receiver.claim(count)
        note(queue, "r", [])
        note(queue, "r", [Failed(ids[0]), Failed(ids[2]), Failed(ids[4])])
        note(queue, "r", [], claim=2)
        receiver.commit(2)
        assert waiting(queue) == [(b"0", 1)]
        note(queue, "r", [])
        receiver.commit(3)
    assert waiting(queue) == [(b"0", 1)]


def test_another_process_notes_without_the_receivers_lock(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)

        def other() -> None:
            note(penstock.open(queue.path), "r", [Failed(ids[3], "there")])

        assert in_child(other) == 0
        receiver.commit(1)
    assert waiting(queue) == [(b"3", 1), (b"4", 0), (b"5", 0)]
    (message,) = [m for m in queue.browse() if m.data == b"3"]
    assert [text for _, text in queue._mine().failures.read(message.number, message.slot)] == ["there"]


def test_their_file_is_as_the_format_says(queues: Queues) -> None:
    queue, ids = filled(queues)
    question = ask(queue, "?", priority=5)
    with queue.receiver("r") as receiver:
        assert receiver.claim(9)
        verdicts = [
            Failed(ids[0], "no", 1.5),
            Failed(ids[1], plain_s=2),
            Dead(ids[2], "why"),
            Answered(question, 1, b"yes"),
        ]
        note(queue, "r", verdicts)
        data = (queue.path / "claims" / "r" / "1.verdicts").read_bytes()
    assert data[:8] == b"PSTKVRD1"
    words = [int.from_bytes(data[at : at + 8], "little") for at in (8, 16, 24, len(data) - 8)]
    assert words == [queue._mine().signature, 1, 4, zlib.crc32(data[:-8])]
    places = [list(queue.parse_id(one.id)) for one in verdicts]
    assert msgspec.msgpack.decode(data[32:-8]) == [
        ["failed", *places[0], "no", 1_500_000, 0],
        ["failed", *places[1], None, None, 2_000_000],
        ["dead", *places[2], "why", None],
        ["answered", *places[3], 1, b"yes"],
    ]


def test_what_cannot_be_is_refused_and_nothing_is_noted(queues: Queues) -> None:
    queue, ids = filled(queues)
    other = queues("other")
    foreign = other.put(b"x")
    question = ask(queue, "?", priority=5)
    with pytest.raises(penstock.NoSuchReceiver):
        note(queue, "r", [Failed(ids[0])])
    with queue.receiver("r") as receiver, queue.receiver("s") as second:
        assert receiver.claim(3) and second.claim(1) and receiver.claim(1)
        receiver.release(2)
        refused: list[list[Verdict]] = [
            [Failed(ids[2])],  # of another receiver
            [Failed(ids[3])],  # released
            [Failed(ids[5])],  # of nobody
            [Failed(foreign)],
            [Failed("no id")],
            [Failed(f"{ids[0].partition('-')[0]}-{'f' * 20}-{'f' * 20}")],
            [Failed(ids[0]), Dead(ids[0], "x")],
            [Failed(ids[0], delay_s=-1)],
            [Dead(ids[0], None)],  # type: ignore[arg-type]
            [Answered(ids[0], 0, b"nobody asked")],
            [Answered(question, 99, b"")],
            [Answered(question, codec.CODEC_JSON, b"{")],
            [Answered(question, 0, b"x" * (2 << 20))],
            ["failed"],  # type: ignore[list-item]
        ]
        for verdicts in refused:
            with pytest.raises(penstock.Misuse):
                note(queue, "r", [Failed(ids[1]), *verdicts])
        for claim in (2, 7):
            with pytest.raises(penstock.NoSuchClaim):
                note(queue, "r", [], claim=claim)
        with pytest.raises(penstock.Misuse, match="is in claim 1, not 3"):
            assert receiver.claim(1)
            note(queue, "r", [Failed(ids[1])], claim=3)
        assert not [name for name in left(queue) if "verdicts" in name]
        receiver.commit(1)
        with pytest.raises(penstock.Misuse, match="in no open claim of receiver 'r'"):
            note(queue, "r", [Failed(ids[0])])


@pytest.mark.parametrize("fails", ["write_all", "os.rename"])
def test_a_full_disk_leaves_what_was_noted_before(fails: str, queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[0])])
        with monkeypatch.context() as patch:
            patch.setattr(f"penstock.store.namedfiles.{fails}", refuse)
            with pytest.raises(OSError):
                note(queue, "r", [Failed(ids[1])])
        assert left(queue) == {"1", "1.verdicts"}
        receiver.commit(1)
    assert waiting(queue)[0] == (b"0", 1)


# ---------------------------------------------------------------- other ends of a claim


def test_a_release_drops_them(queues: Queues) -> None:
    queue, ids = filled(queues, 4)
    with queue.receiver("r") as receiver:
        assert receiver.claim(2) and receiver.claim(2)
        note(queue, "r", [Dead(ids[0], "x"), Dead(ids[2], "x")])
        receiver.release(1)
        receiver.release(2)
        assert left(queue) == {"2"}
    commit(queue)
    assert waiting(queue) == [] and letters(queue) == []


def test_claims_that_are_overdue_are_released_without_them(queues: Queues, clock: SimulatedClock) -> None:
    queue, ids = filled(queues, 4, index_sync_ms=0)
    with queue.receiver("r", timeout=60) as receiver:
        assert receiver.claim(2)
        note(queue, "r", [Dead(ids[0], "x")])
    clock.advance(61)
    assert release_overdue(queue) == 2
    commit(queue)
    assert waiting(queue) == [] and letters(queue) == []


def test_a_receiver_is_forgotten_with_them(queues: Queues) -> None:
    queue, ids = filled(queues, 4)
    with queue.receiver("r") as receiver:
        assert receiver.claim(2)
        note(queue, "r", [Failed(ids[0])])
        receiver.commit(1, later=True)
    queue.forget_receiver("r")
    assert not (queue.path / "claims" / "r").exists() and waiting(queue) == [(b"0", 1), (b"2", 0), (b"3", 0)]


@pytest.mark.parametrize("later", [False, True])
def test_the_next_receiver_finishes_a_commit_by_its_verdicts(later: bool, queues: Queues) -> None:
    queue, ids = filled(queues)
    queue.close()

    def die() -> None:
        other = penstock.open(queue.path)
        receiver = other.receiver("r")
        assert receiver.claim(4)
        note(other, "r", [Failed(ids[0], "no"), Dead(ids[2], "poison")])
        receiver.commit(1, later=later)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WIFSIGNALED(in_child(die))
    again = queues.open(queue.path)
    assert (again.stats().claimed == 4) == later
    with again.receiver("r") as receiver:
        assert receiver.claims() == []
    assert waiting(again) == [(b"0", 1), (b"4", 0), (b"5", 0)]
    assert letters(again) == [(b"2", "poison", None, 1)] and left(again) == set()


def test_they_outlive_a_resize_and_are_not_in_a_copy(queues: Queues, tmp_path: Path) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[0]), Dead(ids[2], "poison")])
        penstock.backup(queue.path, tmp_path / "copy")
    queue.close()
    resize_queue(queue.path, slots=128)
    again = queues.open(queue.path)
    with again.receiver("r") as receiver:
        receiver.commit(1)
    assert waiting(again) == [(b"0", 1), (b"4", 0), (b"5", 0)] and len(letters(again)) == 1
    with queues.open(tmp_path / "copy") as copy:
        assert copy.qsize() == 6
        commit(copy)
        assert copy.qsize() == 0


def test_the_background_lets_wait_what_it_cannot_move(queues: Queues, clock: SimulatedClock) -> None:
    """Of a receiver that died in a commit and is overdue."""
    from penstock.timequeue.upkeep import _release_overdue

    queue, ids = filled(queues, 4, index_sync_ms=0)
    with queue.receiver("r", timeout=60) as receiver:
        assert receiver.claim(2) and receiver.claim(2)
        note(queue, "r", [Dead(ids[0], "x")])
        receiver.commit(1, later=True)
    clock.advance(61)
    _release_overdue(queue._mine())
    assert sorted(waiting(queue)) == [(b"0", 1), (b"2", 1), (b"3", 1)]


def test_they_are_carried_out_behind_the_caller_too(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Dead(ids[1], "x"), Failed(ids[2])])
        receiver.commit(1, later=True)
        receiver.settle(behind=True)
        assert receiver.claim(1)
        assert len(letters(queue)) == 1
        receiver.release(2)
    assert waiting(queue)[0][0] == b"2"


# ---------------------------------------------------------------- power loss


def test_after_a_power_loss_they_are_carried_out_again(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[0], "no"), Dead(ids[2], "poison")])
        receiver.commit(1, later=True)
    queue.close()
    restore_queue(queue.path, after_power_loss=True)
    again = queues.open(queue.path)
    assert again.stats().claimed == 4
    again.receiver("r").close()
    assert waiting(again) == [(b"0", 1), (b"4", 0), (b"5", 0)] and letters(again) == [(b"2", "poison", None, 1)]


@pytest.mark.parametrize("second", ["r", "a", "z"])
def test_a_message_that_failed_and_is_claimed_again_belongs_to_the_later_claim(second: str, queues: Queues) -> None:
    queue, ids = filled(queues, 4, index_sync_ms=60_000)
    folder = queue.path / "claims" / "r"
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[1])])
        files = {name: (folder / name).read_bytes() for name in ("1", "1.verdicts")}
        receiver.commit(1)
    with queue.receiver(second) as receiver:
        claim = receiver.claim(4)
        assert claim is not None and claim.references[F_INFO] >> L.ATTEMPTS_SHIFT == 2
    queue.close()
    for name, data in files.items():  # the power was lost before they were removed for good
        (folder / name).write_bytes(data)
    restore_queue(queue.path, after_power_loss=True)
    again = queues.open(queue.path)
    assert again.stats().claimed == 1
    again.receiver("r").close()
    with again.receiver(second) as receiver:
        assert receiver.references(claim.number) == claim.references
        assert len(claim.references) == REFERENCE_WORDS and again.qsize() == 0 and again.stats().claimed == 1
        assert receiver.release(claim.number) == 1
    assert waiting(again) == [(b"1", 2)]


def test_verdicts_without_a_claim_are_swept(queues: Queues) -> None:
    queue, ids = filled(queues)
    folder = queue.path / "claims" / "r"
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[1])])
        data = (folder / "1.verdicts").read_bytes()
        receiver.commit(1)
    (folder / "1.verdicts").write_bytes(data)
    (folder / "1.verdicts.00ff.new").write_bytes(b"")
    assert check_queue(queue.path) == []
    queue.receiver("r").close()
    assert left(queue) == set()


def test_of_a_receiver_that_is_forgotten_they_go_after_their_claims(queues: Queues) -> None:
    """For good: a claim that comes back without them would have what failed acknowledged."""
    queue = queues()
    files = ClaimFiles(queue.path, "r", queue._mine().signature)
    os.close(files.lock())
    files.write(1, array("Q", range(REFERENCE_WORDS)))
    files.judge(1, [KeptFailed(1, 1, None, None)])
    files.commit(1)
    done: list[str] = []

    class Noting:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind in (rig.UNLINK, rig.SYNC):
                done.append(Path(target).name if isinstance(target, str) else kind)

    rig.observe(Noting())
    try:
        files.remove_all()
    finally:
        rig.observe(None)
    assert done[:3] == ["1", rig.SYNC, "1.verdicts"] and "lock" in done[3:]


# ---------------------------------------------------------------- damage


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    overwrite(path, data)


@pytest.mark.damages
def test_damaged_verdicts_are_found_and_nothing_is_acknowledged(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[1])])
        damage(queue.path / "claims" / "r" / "1.verdicts")
        (finding,) = check_queue(queue.path)
        assert finding.path.endswith("claims/r/1.verdicts")
        with pytest.raises(penstock.Corrupt, match=r"1\.verdicts"):
            receiver.commit(1)
        assert receiver.claims() == [1] and queue.stats().claimed == 4
        note(queue, "r", [Failed(ids[1])])
        receiver.commit(1)
    assert waiting(queue)[0] == (b"1", 1)


@pytest.mark.damages
def test_a_restore_lets_all_messages_of_a_claim_wait_whose_verdicts_are_damaged(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(4)
        note(queue, "r", [Failed(ids[1])])
        receiver.commit(1, later=True)
    queue.close()
    damage(queue.path / "claims" / "r" / "1.verdicts")
    with pytest.raises(penstock.Corrupt), penstock.open(queue.path) as other:
        other.receiver("r")
    restore_queue(queue.path, after_power_loss=True)
    again = queues.open(queue.path)
    again.receiver("r").close()
    assert [data for data, _ in waiting(again)] == [b"%d" % i for i in range(6)] and left(again) == set()


@pytest.mark.damages
@pytest.mark.parametrize("verdict", [lambda one: Failed(one, "no"), lambda one: Dead(one, "x")])
def test_a_damaged_record_waits_and_keeps_nobody(verdict: Callable[[str], Verdict], queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(4)
        assert claim is not None
        note(queue, "r", [verdict(ids[1])])
        slot, _ = queue.parse_id(ids[1])
        unit = queue._mine().kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT
        path, offset = queue._mine().files.place_of(unit)
        with open(path, "r+b") as file:
            file.seek(offset + L.RECORD_BYTES)
            file.write(b"\xff")
        receiver.commit(1)
    assert queue.qsize() == 3 and queue.stats().claimed == 0


def test_without_a_backoff_what_failed_waits_as_long_as_was_said(queues: Queues) -> None:
    queue, ids = filled(queues)
    with queue.receiver("r") as receiver:
        assert receiver.claim(2)
        note(queue, "r", [Failed(ids[0], "no", plain_s=60), Failed(ids[1], "no", 0.0, plain_s=60)])
        receiver.commit(1)
    later = {m.data: m.deliver_at.timestamp() - m.enqueued_at.timestamp() for m in queue.browse(state="all")}
    assert 59 < later[b"0"] < 120 and later[b"1"] < 59
