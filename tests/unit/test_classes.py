"""The trees by type and key: against sorted lists, damaged, with hashes that collide, and where there are none."""

from __future__ import annotations

import asyncio
import random
import tarfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import codec
from penstock.store import layout as L
from penstock.store.hashes import Hashes, hash_of
from penstock.store.kernel import Kernel
from penstock.timequeue import check_queue, repair_queue, restore_queue
from penstock.timequeue.sizes import resize_queue, upgrade_queue
from tests.conftest import Queues, SimulatedClock, assert_whole
from tests.snapshot import overwrite
from tests.unit.kernels import set_slot, small_kernel

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


# ---------------------------------------------------------------- trees against sorted lists


def place(kernel: Kernel, which: int, slot: int) -> tuple[int, ...]:
    trees = kernel.classes.trees
    rank = trees.rank_of(which, slot)
    number = trees.number_of(slot)
    return trees.major_of(which, slot), trees.minor_of(which, slot), rank, trees.time_of(slot, rank), number


def walk(kernel: Kernel, which: int, slot: int, above: int = L.MASK64) -> list[int]:
    """A tree in its order, with everything asserted that a tree must be."""
    if slot == 0:
        return []
    trees = kernel.classes.trees
    height = trees.height_of(slot)
    assert height < above
    pair = kernel.get(trees.links_at(which, slot))
    found = [*walk(kernel, which, pair & L.MASK32, height), slot, *walk(kernel, which, pair >> 32, height)]
    if which == L.B_KEYS:
        assert trees.size_of(slot) == len(found)
    return found


@pytest.mark.parametrize("which", [L.B_KEYS, L.B_TYPES])
def test_a_tree_holds_what_a_sorted_list_holds(which: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    kernel = small_kernel(300)
    trees = kernel.classes.trees
    hashes = [64 * n + 7 for n in range(1, 4)]  # of one bucket
    free = list(range(2, 300))
    members: list[int] = []
    for number in range(1, 1500):
        if free and (not members or rng.random() < 0.55):
            slot = free.pop(rng.randrange(len(free)))
            kernel.classes.classify(slot, rng.choice(hashes), rng.choice(hashes))
            flags = rng.choice((L.FLAG_READY, 0)) | L.FLAG_CLASSED
            set_slot(kernel, slot, L.S_INFO, flags << L.FLAGS_SHIFT | rng.choice((0, 3)))
            set_slot(kernel, slot, L.S_DELIVER_US, rng.randrange(5))
            set_slot(kernel, slot, L.S_WORD, kernel.word_of(slot, number, L.STATE_WAITING))
            trees.insert(which, slot)
            members.append(slot)
        else:
            slot = members.pop(rng.randrange(len(members)))
            trees.remove(which, slot)
            free.append(slot)
        kernel.commit()
        if number % 10 == 0:
            members.sort(key=lambda one: place(kernel, which, one))
            assert walk(kernel, which, kernel.get(trees.root_at(which, 7))) == members
            aim = rng.choice(hashes), rng.choice((0, *hashes)), rng.randrange(32), rng.randrange(6), rng.randrange(1500)
            trees.aim(*aim)
            behind = [one for one in members if place(kernel, which, one) >= aim]
            assert trees.lower(which) == (behind[0] if behind else 0)
            if which == L.B_KEYS:
                assert trees.count_before() == len(members) - len(behind)


def test_a_step_needs_far_less_than_the_room_that_the_journal_keeps(queue: Queues) -> None:
    """Thousands of messages of one exclusive key: what ends leaves its transaction open, so it can be counted."""
    q = queue(slots=5000, data_bytes=2 << 20, exclusive_keys=True)
    for first in range(0, 3000, 500):
        q.put_many([b""] * 500, key="k", type="t", deliver_at=1000.0 + first)
        q.put_many([b""] * 300, key="k", type="t")
    client = q._mine()
    counts = []

    def ack(message: penstock.Message) -> None:
        client.kernel.ack(message.slot, client.index, 0)
        counts.append(client.words.count)
        client.kernel.commit()

    for _ in range(200):
        client.turn(ack, q.get(block=False))
    assert min(counts) > 10
    assert max(counts) < L.JOURNAL_ROOM / 3


# ---------------------------------------------------------------- hashes


def test_what_is_no_meta_has_no_hashes() -> None:
    hashes = Hashes(7)
    meta = codec.encode_meta("type", "key", {"a": "b"})
    assert hashes.read(meta)
    both = hashes.type_hash, hashes.key_hash
    assert both == (hash_of("type", 7, False), hash_of("key", 7, True))
    for end in range(len(meta)):  # cut off anywhere: less is known, and nothing else
        hashes.read(meta[:end])
        assert hashes.type_hash in (0, both[0]) and hashes.key_hash in (0, both[1])
    for wrong in (b"", b"\x00", b"\x93\x01", b"\x81\xa1t\xc0", b"\x81\xa2tt\xa1x", bytes(range(256))):
        assert not hashes.read(wrong), wrong
    assert hashes.read(b"\x82\xa1z\xa1z\xa1t\xa1a") and hashes.type_hash == hash_of("a", 7, False)


def test_equal_names_have_other_hashes_as_type_and_as_key_and_in_other_queues() -> None:
    assert len({hash_of("a", secret, is_key) for secret in (1, 2) for is_key in (False, True)}) == 4


def collide(queue: penstock.TimeQueue, message_id: str, key: str) -> None:
    """As if a message's key had the same hash as another one."""
    client = queue._mine()
    slot, _ = queue.parse_id(message_id)

    def change() -> None:
        client.kernel.classes.leave(slot)
        client.kernel.classes.classify(slot, 0, hash_of(key, client.signature, True))
        client.kernel.classes.enter(slot)
        client.kernel.commit()

    client.turn(change)


@pytest.mark.damages  # a check finds the wrong hash
def test_a_message_with_the_same_hash_and_another_key_is_not_delivered(queue: Queues) -> None:
    q = queue()
    collide(q, q.put("wrong", key="b"), "a")
    assert q.get_many(5, key="a") == []
    assert q.get_many(5, key="a", wait=0.01) == []
    q.put("right", key="a")
    assert [message.body for message in q.get_many(5, key="a")] == ["right"]
    assert q.get_many(5, key="a") == []
    assert [(message.body, message.key) for message in q.get_many(5)] == [("wrong", "b")]


@pytest.mark.damages
def test_a_coroutine_is_not_given_a_message_with_the_same_hash_and_another_key(queue: Queues) -> None:
    q = queue()
    collide(q, q.put("wrong", key="b"), "a")

    async def run() -> None:
        assert await q.aget_many(1, key="a") == []
        q.put("right", key="a")
        assert (await q.aget(timeout=20, key="a")).body == "right"

    asyncio.run(run())
    until = time.monotonic() + 20
    while q.qsize() == 0 and time.monotonic() < until:  # a thread gives it back
        time.sleep(0.001)
    assert [(message.body, message.key) for message in q.get_many(5)] == [("wrong", "b")]


@pytest.mark.damages
def test_a_group_has_one_key_even_if_the_hashes_of_two_are_the_same(queue: Queues) -> None:
    q = queue()
    q.put("right", key="a")
    collide(q, q.put("wrong", key="b"), "a")
    assert [message.body for message in q.get_many(5, group="largest")] == ["right"]
    assert [message.body for message in q.get_many(5)] == ["wrong"]


# ---------------------------------------------------------------- damage


def damaged_queue(path: Path, exclusive: bool) -> list[Any]:
    with penstock.create(path, slots=20, data_bytes=16 << 10, exclusive_keys=exclusive, index_sync_ms=0) as q:
        for n in range(9):
            q.put(n, type=(None, "a", "b")[n % 3], key=(None, "x", "y")[n // 3])
        q.put("later", type="a", key="x", delay=1e6)
        q.put("gone", type="a", key="x", priority=9)
        q.get(type="a").ack() if not exclusive else q.cancel(next(q.browse()).id)
        return sorted(str(message.body) for message in q.browse())


@pytest.mark.damages
@pytest.mark.parametrize("exclusive", [False, True], ids=["keys", "exclusive keys"])
def test_every_flipped_word_of_the_trees_is_found_and_repaired(path: Path, exclusive: bool) -> None:
    """Links, hashes, sizes, roots and the flag of the held; but for words that mean nothing."""
    before = damaged_queue(path, exclusive)
    kernel = path / "kernel"
    whole = kernel.read_bytes()
    words = memoryview(whole).cast("Q")
    fresh, slots_at, trees_at = words[L.H_FRESH], words[L.H_SLOTS_AT], words[L.H_TREES_AT]
    flags = {slot: words[slots_at + slot * L.SLOT_WORDS + L.S_INFO] >> L.FLAGS_SHIFT for slot in range(2, fresh)}
    waiting = [
        slot
        for slot in flags
        if words[slots_at + slot * L.SLOT_WORDS] >> L.STATE_SHIFT & 0xF == L.STATE_WAITING
        and flags[slot] & L.FLAG_CLASSED
    ]
    assert any(flags[slot] & L.FLAG_HELD for slot in waiting) == exclusive
    meant: list[int] = []
    for slot in waiting:
        at = trees_at + slot * L.TREE_WORDS
        meant += [at + L.X_TYPE, at + L.X_KEY, slots_at + slot * L.SLOT_WORDS + L.S_INFO]
        if words[at + L.X_TYPE] and not flags[slot] & L.FLAG_HELD:
            meant.append(at + L.X_TYPE_LINKS)
        if words[at + L.X_KEY]:
            meant += [at + L.X_SIZE, slots_at + slot * L.SLOT_WORDS + L.S_CLASS_LINKS]
    roots = [words[L.H_CLASSES_AT] + bucket * L.CLASS_WORDS for bucket in range(words[L.H_CLASSES])]
    meant += [root + which for root in roots for which in (L.B_KEYS, L.B_TYPES) if words[root + which]]
    infos = {slots_at + slot * L.SLOT_WORDS + L.S_INFO for slot in waiting}
    held = L.FLAG_HELD << L.FLAGS_SHIFT
    classed = L.FLAG_CLASSED << L.FLAGS_SHIFT
    for word in meant:
        for flip in (held, classed) if word in infos else (1, 2, 1 << 33):
            data = bytearray(whole)
            view = memoryview(data).cast("Q")
            view[word] ^= flip
            view.release()
            overwrite(kernel, data)
            assert check_queue(path), f"word {word}, flip {flip:#x}"
    assert repair_queue(path)
    assert_whole(path)
    with penstock.open(path) as q:
        assert sorted(str(message.body) for message in q.browse()) == before


@pytest.mark.damages
def test_a_loop_in_a_tree_is_an_error_and_no_endless_search(path: Path) -> None:
    with penstock.create(path, slots=20, data_bytes=16 << 10, durability="relaxed") as q:
        ids = [q.put(n, type="a") for n in range(6)]
        client = q._mine()
        trees = client.kernel.classes.trees
        for slot in [q.parse_id(one)[0] for one in ids]:
            at = trees.links_at(L.B_TYPES, slot)
            client.words.raw(at, slot | slot << 32)
        with pytest.raises(penstock.Corrupt):
            q.get(block=False, type="a")
        with pytest.raises(penstock.Corrupt):
            for n in range(50):
                q.put(n, type="a")
    assert check_queue(path)
    repair_queue(path)
    with penstock.open(path) as q:
        assert len(q.get_many(100, type="a")) >= 6


# ---------------------------------------------------------------- queues that were made before there were trees


@pytest.fixture
def old(tmp_path: Path, queue: Queues, clock: SimulatedClock) -> penstock.TimeQueue:
    with tarfile.open(GOLDEN / "format-1.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # since 3.11.4
        tar.extractall(tmp_path)
    opened = queue.open(tmp_path / "queue")
    assert opened._mine().kernel.trees_at == 0
    opened.purge()
    return opened


def test_a_queue_without_trees_is_selected_from_too(old: penstock.TimeQueue, clock: SimulatedClock) -> None:
    for n in range(9):
        old.put(n, type="abc"[n % 3], key=("x", "y", None)[n // 3], priority=n // 8)
    assert [m.body for m in old.get_many(2, type="b")] == [1, 4]
    assert old.get(block=False, type=["b", "c"], key="y").body == 5
    assert [m.body for m in old.get_many(10, type="c")] == [8, 2]
    assert old.get_many(10, type="d") == []
    old.put("later", type="d", delay=10)
    assert old.get_many(10, type="d") == []
    clock.advance(11)
    assert [m.body for m in old.get_many(10, type="d")] == ["later"]


def test_coroutines_select_from_a_queue_without_trees(tmp_path: Path, queue: Queues) -> None:
    with tarfile.open(GOLDEN / "format-1.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(tmp_path)
    q = queue.open(tmp_path / "queue", clock=None)

    async def run() -> None:
        assert await q.aget_many(5, type="mine", wait=0.05) == []
        waiting = asyncio.create_task(q.aget(timeout=20, type="mine"))
        await asyncio.sleep(0.01)
        q.put("no", type="other")
        q.put("yes", type="mine")
        assert (await waiting).body == "yes"

    asyncio.run(run())


def test_groups_of_a_queue_without_trees(old: penstock.TimeQueue, clock: SimulatedClock) -> None:
    for n in range(5):
        old.put(n, key="odd" if n % 2 else "even")
    old.put("no key")
    old.put("later", key="odd", delay=10)
    assert {group.key: (group.waiting, group.due) for group in old.groups()} == {"odd": (3, 2), "even": (3, 3)}
    assert [m.body for m in old.get_many(9, group="largest")] == [0, 2, 4]
    assert [m.body for m in old.get_many(9, group="oldest")] == [1, 3]
    assert old.get_many(9, group="oldest") == []


def test_a_receiver_of_a_queue_without_trees_is_woken(tmp_path: Path, queue: Queues) -> None:
    with tarfile.open(GOLDEN / "format-1.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(tmp_path)
    q = queue.open(tmp_path / "queue", clock=None)
    sender = threading.Timer(0.1, lambda: [q.put("no", type="other"), q.put("yes", type="mine")])
    sender.start()
    assert q.get(timeout=20, type="mine").body == "yes"
    sender.join()


def test_a_receiver_that_found_only_what_has_expired_is_woken_where_there_are_no_trees(
    tmp_path: Path, queue: Queues
) -> None:
    with tarfile.open(GOLDEN / "format-1.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(tmp_path)
    q = queue.open(tmp_path / "queue", clock=None)
    q.put("no", type="mine", ttl=0.001)
    time.sleep(0.01)
    found: list[object] = []
    receiver = threading.Thread(target=lambda: found.append(q.get(timeout=20, type="mine").body))
    receiver.start()
    while not q.stats().dropped:
        time.sleep(0.001)
    end_s = time.monotonic() + 0.5  # by itself it looks once a second
    while not q._mine().kernel.get(L.H_SLEEPERS) and time.monotonic() < end_s:
        time.sleep(0.001)
    armed = q._mine().kernel.get(L.H_SLEEPERS)
    q.put("yes", type="mine")
    receiver.join()
    assert armed and found == ["yes"]


def test_a_queue_without_trees_stays_so_when_it_is_copied_and_restored(
    old: penstock.TimeQueue, tmp_path: Path, queue: Queues
) -> None:
    old.put("a", type="a", key="k")
    penstock.backup(old.path, tmp_path / "copy", new_identity=True)
    copy = queue.open(tmp_path / "copy")
    assert copy._mine().kernel.trees_at == 0
    assert copy.get(block=False, type="a").body == "a"


# ---------------------------------------------------------------- copies and restores


@pytest.mark.parametrize("exclusive", [False, True], ids=["keys", "exclusive keys"])
@pytest.mark.parametrize("new_identity", [False, True], ids=["the same identity", "a new one"])
def test_a_backup_has_trees_of_its_own(tmp_path: Path, queue: Queues, exclusive: bool, new_identity: bool) -> None:
    q = queue(exclusive_keys=exclusive)
    for n in range(8):
        q.put(n, type="a", key="k" if n % 2 else None)
    q.get(block=False, key="k")
    penstock.backup(q.path, tmp_path / "copy", new_identity=new_identity)
    copy = queue.open(tmp_path / "copy")
    assert Counter({group.key: group.waiting for group in copy.groups()}) == {"k": 4}
    assert [m.body for m in copy.get_many(9, key="k")] == ([1] if exclusive else [1, 3, 5, 7])
    assert len(copy.get_many(9, type="a")) == 4


@pytest.mark.parametrize("exclusive", [False, True], ids=["keys", "exclusive keys"])
def test_a_resized_queue_has_its_trees(path: Path, exclusive: bool) -> None:
    """In a table of another size a hash is in another bucket."""
    with penstock.create(path, slots=2000, data_bytes=1 << 20, durability="relaxed", exclusive_keys=exclusive) as q:
        for n in range(30):
            q.put(n, type="ab"[n % 2], key=f"key {n % 5}", delay=1e6 if n > 24 else None)
    for slots in (4000, 100):
        resize_queue(path, slots=slots)
        assert_whole(path)
        with penstock.open(path) as q:
            assert {group.key: group.waiting for group in q.groups()} == {f"key {n}": 6 for n in range(5)}
            found = [message.body for message in q.get_many(100, key=["key 0", "key 1"], type="a")]
            assert found == ([0] if exclusive else [0, 6, 10, 16, 20])


def seen(q: penstock.TimeQueue) -> list[tuple[Any, ...]]:
    return [
        (m.id, m.state, m.body, m.priority, m.type, m.key, m.attempts, m.deliver_at, m.enqueued_at)
        for m in q.browse(state="all")
    ]


def put_all_kinds(q: penstock.TimeQueue) -> None:
    """With types, keys, both, neither, other metas and large bodies; delivered before, delayed and claimed."""
    q.put_many(
        [penstock.Draft(body=n, type=(None, "a", "b")[n % 3], key=(None, "x", "y")[n // 2 % 3]) for n in range(6)]
    )
    q.put("headers", headers={"only": "these"})
    q.put("large" * 200, type="a", key="x", headers={"h": "v"}, priority=1)
    q.put("later", type="b", delay=1000)
    q.get(type="b", block=False).release()
    with q.receiver("report") as receiver:
        receiver.claim(1)


@pytest.mark.parametrize("how", ["upgrade", "resize"])
def test_an_upgrade_gives_a_queue_its_trees(old: penstock.TimeQueue, queue: Queues, how: str) -> None:
    put_all_kinds(old)
    before = seen(old)
    groups = {(group.key, group.waiting, group.due) for group in old.groups()}
    old.close()
    assert (upgrade_queue(old.path) if how == "upgrade" else resize_queue(old.path, slots=40)).changed
    assert not upgrade_queue(old.path).changed
    assert_whole(old.path)
    upgraded = queue.open(old.path)
    assert upgraded._mine().kernel.trees_at != 0 and upgraded.stats().restores == 1
    assert seen(upgraded) == before
    assert {(group.key, group.waiting, group.due) for group in upgraded.groups()} == groups
    wanted = [row[2] for row in before if row[1] == "waiting" and row[4] == "a"]
    found = upgraded.get_many(9, type="a")
    assert [m.body for m in found] == wanted and len(wanted) > 1
    assert upgraded.get_many(9, type="a") == []
    upgraded.ack_many(found)
    upgraded.put("new", type="a")
    assert upgraded.get(block=False, type="a").body == "new"


def test_what_an_upgraded_queue_had_before_is_found_after_a_power_loss_too(
    old: penstock.TimeQueue, queue: Queues
) -> None:
    put_all_kinds(old)
    old.close()
    upgrade_queue(old.path)
    with penstock.open(old.path) as q:
        q.put("new", type="a", key="new")
        groups = {(group.key, group.waiting) for group in q.groups()}
        waiting = sorted(str(m.body) for m in q.browse() if m.type == "a")
    restore_queue(old.path)
    assert_whole(old.path)
    restored = queue.open(old.path)
    assert {(group.key, group.waiting) for group in restored.groups()} == groups
    assert sorted(str(m.body) for m in restored.get_many(9, type="a")) == waiting
    assert len(restored.get_many(9)) == sum(m.type != "a" for m in restored.browse(state="pending"))


def test_a_copy_of_an_upgraded_queue_has_its_trees(old: penstock.TimeQueue, queue: Queues, tmp_path: Path) -> None:
    old.put("a", type="a", key="k")
    old.close()
    upgrade_queue(old.path)
    for number, identity in enumerate((False, True)):
        penstock.backup(old.path, tmp_path / f"copy{number}", new_identity=identity)
        assert_whole(tmp_path / f"copy{number}")
        copy = queue.open(tmp_path / f"copy{number}")
        assert [m.body for m in copy.get_many(9, key="k")] == ["a"]


@pytest.mark.damages
def test_a_damaged_record_is_no_obstacle_to_an_upgrade(old: penstock.TimeQueue) -> None:
    slot = int(old.put("a", type="a", key="k").split("-")[1], 16)
    old.put("b", type="a")
    place = old._mine().kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT
    old.close()
    data = bytearray((old.path / "data.0").read_bytes())
    data[place * L.UNIT_BYTES] ^= 1
    overwrite(old.path / "data.0", data)
    upgrade_queue(old.path)
    assert [finding.what.endswith("no signature") for finding in check_queue(old.path)] == [True]
    with penstock.open(old.path) as q:
        assert q.get(block=False, type="a").body == "b"
