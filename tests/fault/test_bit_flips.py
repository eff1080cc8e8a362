"""A bit flips in any byte that means something, or a file ends too early (issue of S6): it is found and reported with
file and offset, and what is not damaged is delivered, with its true body. Nothing is ever delivered altered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store.files import BODIES, KERNEL, QUEUE_JSON
from penstock.timequeue import Finding, check_queue, repair_queue

FAR_S = 4_000_000_000
STRIDE = 1 if penstock.compiled else 7  # interpreted, some of them will do: it is the same code

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
    "H_NUMBER_LIMIT": "as long as it is not far from the next number",
    "H_NUMBER_SAFE": "a limit of numbers is written once more, or once less, before the next restore raises it",
    "H_SETTLED": "a time in numbers",
    "H_OWED": "somebody is woken for nothing",
    "H_CLIENTS_HIGH": "as long as it covers all clients that hold something",
    "H_WAKE": "a futex: changes are all that counts",
    "H_SLEEPERS": "somebody is woken for nothing, or looks after a second",
    "H_ROOM": "as H_WAKE",
    "H_ROOM_SLEEPERS": "as H_SLEEPERS",
    "H_SYNC_BEGUN": "a counter of this boot; restore begins anew",
    "H_SYNC_DONE": "likewise",
    "H_SYNC_SLEEPERS": "as H_SLEEPERS",
    "H_SYNC_BEGUN_US": "a time",
    "H_INDEX_BEGUN": "as H_SYNC_BEGUN",
    "H_INDEX_DONE": "likewise",
    "H_INDEX_SLEEPERS": "as H_SLEEPERS",
    "H_INDEX_BEGUN_US": "a time",
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
    "S_CLASS_LINKS": "reserved",
    "S_CLASS": "reserved",
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
            if hasattr(queue, "sync_index"):
                queue.sync_index()
        self.files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        self.kernel = path / KERNEL
        self.data = path / "data.0"
        (self.body,) = (path / BODIES).iterdir()
        self.words = memoryview(self.files[self.kernel]).cast("Q")
        self._dirty: set[Path] = set()

    def slot_at(self, slot: int) -> int:
        return (self.words[L.H_SLOTS_AT] + slot * L.SLOT_WORDS) * L.WORD_BYTES

    def record_at(self, slot: int) -> int:
        return (self.words[self.slot_at(slot) // L.WORD_BYTES + L.S_PLACE] >> L.PLACE_SHIFT) * L.UNIT_BYTES

    def record_bytes(self, slot: int) -> int:
        head = L.RECORD.unpack_from(self.files[self.data], self.record_at(slot))
        return L.RECORD_BYTES + head[8] + head[7]

    def reset(self) -> None:
        for file in self.path.rglob("*"):
            if file.is_file() and file not in self.files:
                file.unlink()
        for file, data in self.files.items():
            if not file.exists() or file in (self.kernel, self.data) or file in self._dirty:
                file.write_bytes(data)

    def flip(self, file: Path, offset: int) -> None:
        self.reset()
        data = bytearray(self.files[file])
        data[offset] ^= 1 << (offset * 5 + offset // 8) % 8
        file.write_bytes(data)
        self._dirty.add(file)

    def cut(self, file: Path, size_bytes: int) -> None:
        self.reset()
        file.write_bytes(self.files[file][:size_bytes])
        self._dirty.add(file)

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
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with penstock_folder(tmp_path_factory, folder) as path:
        yield Damaged(path)
