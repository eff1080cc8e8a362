"""A bit flips in any byte that means something, or a file ends too early (issue of S6): it is found and reported with
file and offset, and what is not damaged is delivered, with its true body. Nothing is ever delivered altered."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store.files import BODIES, KERNEL, NOTIFY, QUEUE_JSON, WAKEUP
from penstock.timequeue import Finding, check_queue, repair_queue, restore_queue
from tests.snapshot import FAST, Snapshot, overwrite
from tests.thoroughness import FIRST, IN_FULL

FAR_S = 4_000_000_000
STRIDE = 1 if IN_FULL else 7

MESSAGES = {
    b"plain": {},
    b"with meta": {"type": "order", "key": "example.com", "headers": {"a": "b"}},
    b"spilled" * 30: {},
    b"timed": {"deliver_at": FAR_S, "priority": 3},
    b"batch one": {},
    b"batch two": {},
}
GONE = b"gone"
SPILLED = b"spilled" * 30

# Words without redundancy: a number or a time that is another one is still one. None of them can lose or alter a
# message that is confirmed.
UNNOTICED_HEADER = {
    "H_JOURNAL_COUNT": "leftovers of old transactions are rolled back: harmless, or found by what they change",
    "H_NUMBER_NEXT": "numbers are skipped, up to the limit",
    "H_RETIRING_SYNC": "with nothing retiring it means nothing; else room is given back a sync earlier or later",
    "H_NUMBER_LIMIT": "as long as it is not far from the next number",
    "H_NUMBER_SAFE": "a limit of numbers is written once more, or once less, before the next restore raises it",
    "H_SETTLED": "a time in numbers",
    "H_OWED": "somebody is woken for nothing",
    "H_CLIENTS_HIGH": "as long as it covers all clients that hold something",
    "H_WAKE": "a futex: changes are all that counts",
    "H_SLEEPERS": "somebody is woken for nothing, or looks after a second",
    "H_CHOOSERS": "likewise",
    "H_WATCHED": "likewise",
    "H_ROOM_WATCHED": "likewise",
    "H_ROOM": "as H_WAKE",
    "H_ROOM_SLEEPERS": "as H_SLEEPERS",
    "H_SYNC_BEGUN": "a counter of this boot; restore begins anew",
    "H_SYNC_DONE": "likewise",
    "H_SYNC_BEGUN_US": "a time",
    "H_SYNC_BELL": "as H_WAKE",
    "H_SYNC_GROUP": "a hint for the leader of a sync",
    "H_SYNCER": "somebody is asked who is not there, or not asked",
    "H_INDEX_BEGUN": "as H_SYNC_BEGUN",
    "H_INDEX_DONE": "likewise",
    "H_INDEX_BEGUN_US": "a time",
    "H_INDEX_BELL": "as H_WAKE",
    "H_INDEX_MARK": "an index sync more or less",
    "H_INDEX_SYNC_US": "a time",
    "H_BOOT_ID": "identity of the storage: the next open restores, or does not",
    "H_DEVICE": "likewise",
    "H_INODE": "likewise",
    "H_BIRTH_US": "likewise",
    "H_MOUNT": "likewise",
    "H_EPOCH": "reserved",
    "H_CHANGE": "reserved",
}
UNNOTICED_SLOT = {
    "S_LEASE_US": "a time; means something only while the message is pending",
    "S_ATTEMPT_US": "a time",
    "S_LANES": "lanes above the level of the slot are never read",
    "S_OWNER": "read only while the message is pending",
    "S_CHAIN": "read only while the message is pending or the slot vacant",
    "S_GAP": "read only where there is a gap behind the record",
    "S_CLASS_LINKS": "read only where the message has a key",
    "S_ENQUEUED_US": "a time",
    "S_INFO": "attempts have no second copy",
}
HEADER_WORDS = {value: name for name, value in vars(L).items() if name.startswith("H_")}
SLOT_WORDS = {value: name for name, value in vars(L).items() if name.startswith("S_")}


class Damaged:
    """A small queue whose files are put back before each damage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with penstock.create(path, slots=10, data_bytes=16 << 10, spill_bytes=100) as queue:
            bodies = list(MESSAGES)
            ids = [queue.put(body, **MESSAGES[body]) for body in bodies[:2]]  # type: ignore[arg-type]
            gone = queue.put(GONE)
            ids += [queue.put(body, **MESSAGES[body]) for body in bodies[2:4]]  # type: ignore[arg-type]
            ids += queue.put_many(bodies[4:])
            self.ids = dict(zip(bodies, ids, strict=True))
            self.slots = {body: queue.parse_id(one)[0] for body, one in self.ids.items()}
            self.gone_slot = queue.parse_id(gone)[0]
            queue.cancel(gone)
            queue.sync_index()
        self._snapshot = Snapshot(path)
        self.files = self._snapshot.files
        self.kernel = path / KERNEL
        self.data = path / "data.0"
        (self.body,) = (path / BODIES).iterdir()
        self.words = memoryview(self.files[self.kernel]).cast("Q")

    def slot_at(self, slot: int) -> int:
        return (self.words[L.H_SLOTS_AT] + slot * L.SLOT_WORDS) * L.WORD_BYTES

    def record_at(self, slot: int) -> int:
        return (self.words[self.slot_at(slot) // L.WORD_BYTES + L.S_PLACE] >> L.PLACE_SHIFT) * L.UNIT_BYTES

    def record_bytes(self, slot: int) -> int:
        head = L.RECORD.unpack_from(self.files[self.data], self.record_at(slot))
        return L.RECORD_BYTES + head[8] + head[7]

    def reset(self) -> None:
        self._snapshot.put_back()

    def flip(self, file: Path, offset: int) -> None:
        self.reset()
        data = bytearray(self.files[file])
        data[offset] ^= 1 << (offset * 5 + offset // 8) % 8
        overwrite(file, data)

    def cut(self, file: Path, size_bytes: int) -> None:
        self.reset()
        overwrite(file, self.files[file][:size_bytes])

    def is_below(self, body: bytes, file: Path, left: int) -> bool:
        """Whether a message does not need what is behind the first ``left`` bytes of a file."""
        if file == self.data:
            return self.record_at(self.slots[body]) + self.record_bytes(self.slots[body]) <= left
        return file == self.kernel or body != SPILLED

    # ------------------------------------------------------------ what becomes of it

    def check(self) -> list[Finding]:
        """What a check says; an error that names the file counts as well."""
        try:
            return check_queue(self.path)
        except penstock.Corrupt as error:
            return [Finding(error.path, error.offset, str(error))]
        except penstock.PenstockError as error:
            assert str(self.path) in str(error)
            return [Finding(str(self.path / QUEUE_JSON), 0, str(error))]

    def deliver(self) -> list[bytes]:
        """Everything that a receiver can get, after a repair."""
        repair_queue(self.path)
        assert not check_queue(self.path)
        with penstock.open(self.path, busy_s=1) as queue:
            bodies = []
            for message in queue.browse(state="all"):
                assert message.data in MESSAGES or message.data == GONE, "altered"
                options = MESSAGES.get(message.data, {})
                assert message.type == options.get("type")
                assert message.headers == options.get("headers", {})
                bodies.append(message.data)
            return sorted(bodies)


@pytest.fixture(scope="module")
def damaged() -> Iterator[Damaged]:
    folder = tempfile.mkdtemp(prefix="penstock-flips-", dir=FAST)
    yield Damaged(Path(folder) / "queue")
    shutil.rmtree(folder)


ALL = sorted(MESSAGES)


def without(body: bytes) -> list[bytes]:
    return [one for one in ALL if one != body]


def told(findings: list[Finding], file: Path, first: int, size_bytes: int) -> bool:
    """Whether a finding names the file and a place in these bytes of it."""
    return any(f.path == str(file) and first <= f.offset < first + size_bytes for f in findings)


def every(size_bytes: int) -> range:
    return range(FIRST % min(STRIDE, size_bytes), size_bytes, STRIDE)


def test_the_words_that_may_go_unnoticed_are_words_of_the_format() -> None:
    assert UNNOTICED_HEADER.keys() <= set(HEADER_WORDS.values())
    assert UNNOTICED_SLOT.keys() <= set(SLOT_WORDS.values())


@pytest.mark.parametrize("word", sorted(HEADER_WORDS.keys() - {L.H_FEATURES}), ids=lambda word: HEADER_WORDS[word])
def test_a_flipped_bit_in_the_header(word: int, damaged: Damaged) -> None:
    words = 2 if HEADER_WORDS[word] in ("H_UUID", "H_BOOT_ID") else 1
    for offset in every(words * L.WORD_BYTES):
        damaged.flip(damaged.kernel, word * L.WORD_BYTES + offset)
        findings = damaged.check()
        assert findings or HEADER_WORDS[word] in UNNOTICED_HEADER, f"byte {offset}"
        assert all(f.path == str(damaged.kernel) and f.offset < len(damaged.words) * L.WORD_BYTES for f in findings)
        assert damaged.deliver() == ALL, f"byte {offset}"


def test_a_flipped_bit_that_looks_like_a_newer_version(damaged: Damaged) -> None:
    """Nothing is done to the queue unless somebody says so who knows better."""
    for offset in every(L.WORD_BYTES):
        damaged.flip(damaged.kernel, L.H_FEATURES * L.WORD_BYTES + offset)
        for call in (check_queue, repair_queue, penstock.open):
            with pytest.raises(penstock.WrongFormat, match=str(damaged.path)):
                call(damaged.path)
        restore_queue(damaged.path)
        assert damaged.deliver() == ALL


@pytest.mark.parametrize("body", [*MESSAGES, GONE], ids=lambda body: body[:9].decode())
def test_a_flipped_bit_in_a_slot(body: bytes, damaged: Damaged) -> None:
    """The message comes back from its record, whatever its slot says."""
    slot = damaged.slots.get(body, damaged.gone_slot)
    for offset in every(L.SLOT_BYTES):
        field = min(offset // L.WORD_BYTES, L.SLOT_WORDS - 1)
        name = SLOT_WORDS.get(field, "S_LANES")
        damaged.flip(damaged.kernel, damaged.slot_at(slot) + offset)
        findings = damaged.check()
        unread = body == GONE and name not in ("S_WORD", "S_CHAIN")  # of a vacant slot only these mean anything
        assert findings or name in UNNOTICED_SLOT or unread, f"{name}, byte {offset}"
        assert all(f.path == str(damaged.kernel) or f.path == str(damaged.data) for f in findings)
        here = damaged.deliver()
        if body == GONE and name == "S_WORD":  # the word that said that it is gone: its record decides
            here = [one for one in here if one != GONE]
        assert here == ALL, f"{name}, byte {offset}"


def test_a_flipped_bit_in_a_sentinel_of_the_ring(damaged: Damaged) -> None:
    for field in (L.S_PLACE, L.S_RING):
        for offset in every(L.WORD_BYTES):
            damaged.flip(damaged.kernel, damaged.slot_at(1) + field * L.WORD_BYTES + offset)
            assert damaged.check(), f"{SLOT_WORDS[field]}, byte {offset}"
            assert damaged.deliver() == ALL


def test_a_flipped_bit_in_a_list(damaged: Damaged) -> None:
    """Heads, tails and counts of the lists that are in use."""
    at = damaged.words[L.H_LISTS_AT]
    for which in (L.LIST_READY, L.LIST_TIMED + 3):
        for offset in every(L.LIST_WORDS * L.WORD_BYTES):
            damaged.flip(damaged.kernel, (at + which * L.LIST_WORDS) * L.WORD_BYTES + offset)
            assert damaged.check(), f"list {which}, byte {offset}"
            assert damaged.deliver() == ALL


@pytest.mark.parametrize("body", MESSAGES, ids=lambda body: body[:9].decode())
def test_a_flipped_bit_in_a_record(body: bytes, damaged: Damaged) -> None:
    """Head, meta and body: it is found where the record is, the message is set aside, all others are delivered."""
    slot = damaged.slots[body]
    at, size_bytes = damaged.record_at(slot), damaged.record_bytes(slot)
    for offset in every(size_bytes):
        damaged.flip(damaged.data, at + offset)
        assert told(damaged.check(), damaged.data, at, size_bytes), f"byte {offset}"
        assert damaged.deliver() == without(body), f"byte {offset}"
        assert (damaged.path / "damaged").is_dir()


def test_a_flipped_bit_in_a_body_of_its_own(damaged: Damaged) -> None:
    for offset in every(len(damaged.files[damaged.body])):
        damaged.flip(damaged.body, offset)
        findings = damaged.check()
        assert any(str(damaged.body) in f.path + f.what for f in findings), f"byte {offset}"
        assert damaged.deliver() == without(SPILLED), f"byte {offset}"


def test_a_flipped_bit_in_queue_json(damaged: Damaged) -> None:
    """It is found, and nothing is touched on the strength of options that cannot be believed; a repair makes them anew,
    unless they look like those of a newer version."""
    file = damaged.path / QUEUE_JSON
    version_at = damaged.files[file].index(b'"penstock":') + len('"penstock":')
    check_at = damaged.files[file].index(b'"check"')
    for offset in every(len(damaged.files[file])):
        damaged.flip(file, offset)
        findings = damaged.check()
        if not findings and check_at <= offset < check_at + len('"check"'):
            continue  # without that name it is a queue.json without a checksum: the rest is true
        assert any(f.path.startswith(str(damaged.path)) for f in findings), f"byte {offset}"
        with pytest.raises(penstock.PenstockError):
            penstock.open(damaged.path, busy_s=1)
        bad = file.read_bytes()
        try:
            assert damaged.deliver() == ALL, f"byte {offset}"
        except penstock.WrongFormat:
            assert version_at <= offset <= version_at + 2, f"byte {offset}"
        else:
            assert file.with_name(f"{QUEUE_JSON}.damaged").read_bytes() == bad


def test_a_file_that_was_cut_off(damaged: Damaged) -> None:
    for file in (damaged.kernel, damaged.data, damaged.body):
        size = len(damaged.files[file])
        for left in (0, 1, size // 3, size - L.PAGE_BYTES, size - 1):
            damaged.cut(file, max(left, 0))
            findings = damaged.check()
            assert any(str(file) in f.path + f.what for f in findings), f"{file.name} of {left} bytes"
            whole = {body for body in ALL if damaged.is_below(body, file, left)}
            here = set(damaged.deliver())
            if file == damaged.kernel:  # that one is gone, only the kernel could say
                here.discard(GONE)
            assert whole <= here <= set(ALL), f"{file.name} of {left} bytes"


def test_a_file_that_is_gone(damaged: Damaged) -> None:
    """Opening never makes it; a repair does, if anything can be made of the rest."""
    for file in damaged.files.keys() - {damaged.path / NOTIFY / WAKEUP}:  # which this queue, with a futex, never opens
        damaged.reset()
        file.unlink()
        if file == damaged.body:
            assert damaged.deliver() == without(SPILLED)
            continue
        for call in (check_queue, penstock.open):
            with pytest.raises((penstock.PenstockError, OSError), match=str(damaged.path)):
                call(damaged.path)
        assert not file.exists()
        if file == damaged.data:
            with pytest.raises(penstock.PenstockError, match=str(damaged.path)):
                repair_queue(damaged.path)
            continue
        here = damaged.deliver()
        if file == damaged.kernel and GONE in here:  # only the kernel could say
            here.remove(GONE)
        assert here == ALL, file.name
