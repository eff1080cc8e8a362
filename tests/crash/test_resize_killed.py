"""Kill -9 at every effect of a resize: the queue has the old sizes or the new ones, with every message, claim and
publisher as they were, and whoever opens it next finds it whole."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import resizing, rig
from penstock.timequeue import check_queue, repair_queue, resize_queue
from tests.crash.rig import in_child, killed_at
from tests.snapshot import FAST
from tests.thoroughness import IN_FULL, KILLED_AT_EVERY, STEPS_MAX, some_of

pytestmark = pytest.mark.timeout(600)

OLD = (60, 64 << 10)
PRIVATE_STRIDE = 5 if IN_FULL else 41  # of steps in private memory
DECIDING = 30  # steps at the end
FAR = 4_000_000_000.0  # epoch seconds, long after any run

SIZES = {
    "more slots": (200, None),
    "fewer slots": (40, None),
    "more data": (None, 256 << 10),
    "less data": (None, 32 << 10),
    "more of both": (3000, 1 << 20),
    "less of both": (41, 36 << 10),
    "more slots and less data": (100, 40 << 10),
}


def fill(path: Path) -> None:
    """All that must survive: priorities, times, a delay, attempts, a body of its own, a batch, claims, a publisher,
    slots that were used and are vacant, and what a dead client held."""
    slots, data_bytes = OLD
    with penstock.create(path, slots=slots, data_bytes=data_bytes, spill_bytes=3000, durability="relaxed") as queue:
        for i in range(24):
            queue.put(b"ready %02d" % i, priority=i % 3, key="k")
        for i in range(8):
            queue.put(b"later %02d" % i, deliver_at=FAR + (i * 7) % 8)
        queue.put_many([b"a", b"b", b"c" * 900], durability="commit")
        queue.put(b"own" * 1500)
        queue.put_once("query", 7, [b"once"])
        for i in range(20):
            queue.put(b"gone %d" % i, priority=9)
        queue.ack_many(queue.get_many(20))
        queue.get().release(delay=1e9)
        queue.get().release()
        with queue.receiver("report", timeout=3600) as receiver:
            receiver.claim(3)
            receiver.claim(2)
        with queue.receiver("idle") as receiver:
            receiver.claim(1)
            receiver.commit(1)
        assert in_child(lambda: die_with_messages(path)) == 0


def die_with_messages(path: Path) -> None:
    assert len(penstock.open(path, busy_s=2).get_many(2)) == 2


def picture(path: Path) -> tuple[tuple[int, int], dict[str, Any]]:
    """The sizes of a queue, and all else that a user can see of it."""
    with penstock.open(path, busy_s=2) as queue:
        client = queue._mine()
        while client.turn(client.return_from_dead):
            pass
        stats = queue.stats()
        messages = [
            (m.id, m.state, m.data, m.priority, m.key, m.attempts, m.deliver_at, m.enqueued_at, m.last_attempt_at)
            for m in queue.browse(state="all")
        ]
        with queue.receiver("report") as receiver:
            claims = {number: receiver.references(number).tolist() for number in receiver.claims()}
        counted = (stats.puts, stats.gets, stats.acks, stats.releases, stats.depth_max, stats.restores)
        seen = {
            "messages": messages,
            "claims": claims,
            "receivers": [(each.name, each.claims, each.messages, each.timeout_s) for each in queue.receivers()],
            "publishers": [(each.publisher, each.last) for each in queue.publishers()],
            "counted": counted,
        }
    return (stats.slots, stats.data_bytes), seen


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-resize-", dir=FAST) as name:
        yield Path(name)


def change(path: Path, slots: int | None, data_bytes: int | None) -> None:
    """The last part of ``resize_queue``, and the only one that is about sizes."""
    resizing.change(path, slots=slots, data_bytes=data_bytes, name=str, busy_s=2, progress=None)  # type: ignore[arg-type]


def sized(wanted: tuple[int | None, int | None]) -> tuple[int, int]:
    return wanted[0] or OLD[0], wanted[1] or OLD[1]


@pytest.mark.parametrize("name", SIZES)
def test_everything_survives_a_resize(name: str, folder: Path) -> None:
    path = folder / "queue"
    fill(path)
    sizes, before = picture(path)
    assert sizes == OLD
    assert len(before["messages"]) > 35 and len(before["claims"]) == 2
    slots, data_bytes = SIZES[name]
    found = resize_queue(path, slots=slots, data_bytes=data_bytes)
    assert (found.slots, found.data_bytes, found.changed) == (*sized(SIZES[name]), True)
    assert check_queue(path) == []
    assert picture(path) == (sized(SIZES[name]), before)
    assert check_queue(path) == []


def killed_steps(path: Path, slots: int | None, data_bytes: int | None) -> tuple[list[int], list[int]]:
    """At which to kill a resize of this queue: of those in private memory some, of those that decide each and one
    more."""

    def count() -> None:
        rig.kill_at(0)
        change(path, slots, data_bytes)
        (path.parent / "steps").write_text(str(rig.steps()))

    assert in_child(count) == 0
    steps = int((path.parent / "steps").read_text())
    deciding = max(steps - DECIDING, 1)
    return list(some_of(PRIVATE_STRIDE, deciding)), list(range(deciding, steps + 2))


@pytest.mark.parametrize("name", SIZES)
def test_killed_at_every_effect_of_a_resize(name: str, folder: Path) -> None:
    slots, data_bytes = SIZES[name]
    outcomes = set()
    fill(folder / "counted")
    picture(folder / "counted")
    private, deciding = killed_steps(folder / "counted", slots, data_bytes)
    for step in private + deciding:
        path = folder / f"queue{step}"
        fill(path)
        _, before = picture(path)
        died = killed_at(step, lambda p: change(p, slots, data_bytes), lambda: path)  # noqa: B023
        decided = resizing.is_cut_short(path)
        findings = check_queue(path)
        assert [finding.what for finding in findings] == ([resizing.CUT_SHORT] if decided else []), step
        sizes, after = picture(path)
        assert sizes in (OLD, sized(SIZES[name])), step
        assert after == before, step
        assert check_queue(path) == [], step
        assert not resizing.is_cut_short(path)
        outcomes.add((sizes, decided, died))
        if not died:
            assert sizes == sized(SIZES[name])
            break
    else:
        raise AssertionError("the resize has no end")
    # It was killed before it was decided, between, and when all was done.
    assert {(OLD, False, True), (sized(SIZES[name]), True, True), (sized(SIZES[name]), False, False)} <= outcomes


def test_killed_at_every_step_of_all_that_a_resize_does(folder: Path) -> None:
    """Also while it settles what the dead left, which is some hundred stores: every seventh of them."""
    for step in some_of(7 * KILLED_AT_EVERY):
        path = folder / f"queue{step}"
        fill(path)
        sizes, before = picture(path)
        died = killed_at(step, lambda p: resize_queue(p, slots=100, data_bytes=1 << 17), lambda: path)  # noqa: B023
        sizes, after = picture(path)
        assert sizes in (OLD, (100, 1 << 17)) and after == before, step
        assert check_queue(path) == [], step
        if not died:
            assert sizes == (100, 1 << 17)
            return
    raise AssertionError("the resize has no end")


# ---------------------------------------------------------------- upgrades

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "format-1.tar.xz"


def fill_old(path: Path) -> None:
    """A queue that was made before there were trees by type and key."""
    with tarfile.open(GOLDEN) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # since 3.11.4
        tar.extractall(path.parent / f"{path.name}-unpacked")
    (path.parent / f"{path.name}-unpacked" / "queue").rename(path)
    with penstock.open(path, busy_s=2) as queue:
        for i in range(6):
            queue.put(b"classed %d" % i, type="ab"[i % 2], key="k" if i > 2 else None, durability="relaxed")
        queue.get(type="b").release()
        queue.get(key="k").release(delay=1e9)
        with queue.receiver("report") as receiver:
            receiver.claim(2)
        assert in_child(lambda: die_with_messages(path)) == 0


def classed(path: Path) -> tuple[bool, list[bytes], list[tuple[str, int]]]:
    """Whether there are trees, and what is found by types and keys."""
    with penstock.open(path, busy_s=2) as queue:
        groups = sorted((group.key, group.waiting) for group in queue.groups())
        found = [message.data for message in queue.get_many(9, type=["a", "b"])]
        return queue._mine().kernel.trees_at != 0, found, groups


def test_killed_at_every_effect_of_an_upgrade(folder: Path) -> None:
    fill_old(folder / "first")
    _, before = picture(folder / "first")
    trees, found, groups = classed(folder / "first")
    assert not trees and len(found) > 2 and groups
    fill_old(folder / "counted")
    picture(folder / "counted")
    outcomes = set()
    private, deciding = killed_steps(folder / "counted", None, None)
    for step in private + deciding:
        path = folder / f"queue{step}"
        fill_old(path)
        _, before = picture(path)
        died = killed_at(step, lambda p: change(p, None, None), lambda: path)  # noqa: B023
        decided = resizing.is_cut_short(path)
        assert [f.what for f in check_queue(path)] == ([resizing.CUT_SHORT] if decided else []), step
        assert picture(path)[1] == before, step
        assert check_queue(path) == [], step
        trees, *rest = classed(path)
        assert rest == [found, groups], step
        assert check_queue(path) == [], step
        outcomes.add((trees, decided, died))
        shutil.rmtree(path)
    assert outcomes >= {(False, False, True), (True, True, True), (True, False, False)}


def test_whoever_finishes_a_resize_may_be_killed_too(folder: Path) -> None:
    steps = finished = 0
    fill(folder / "counted")
    picture(folder / "counted")
    _, deciding = killed_steps(folder / "counted", 300, 1 << 18)
    for step in deciding:
        path = folder / f"queue{step}"
        fill(path)
        _, before = picture(path)
        if not killed_at(step, lambda p: change(p, 300, 1 << 18), lambda: path):  # noqa: B023
            break
        if not resizing.is_cut_short(path):
            continue
        for again in range(1, STEPS_MAX):
            died = killed_at(again, lambda p: resizing.finish(p, 2), lambda: path)  # noqa: B023
            steps += 1
            if not died:
                break
            finished += not resizing.is_cut_short(path)
        assert picture(path) == ((300, 1 << 18), before), step
    assert steps > 10 and finished


def test_it_is_finished_by_a_repair_as_well(folder: Path) -> None:
    path = folder / "counted"
    fill(path)
    picture(path)
    _, deciding = killed_steps(path, 300, 1 << 20)
    for step in deciding:
        path = folder / f"queue{step}"
        fill(path)
        _, before = picture(path)
        assert killed_at(step, lambda p: change(p, 300, 1 << 20), lambda: path)  # noqa: B023
        if resizing.is_cut_short(path):
            break
    assert [finding.what for finding in repair_queue(path, dry_run=True)] == [resizing.CUT_SHORT]
    assert resizing.is_cut_short(path)
    assert repair_queue(path) == []
    assert not resizing.is_cut_short(path)
    assert picture(path) == ((300, 1 << 20), before)
