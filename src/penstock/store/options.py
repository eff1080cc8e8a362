"""Owns ``queue.json``: identity, sizes and habits of a queue. Pure; ``directory.py`` reads and writes it."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Literal

import msgspec

from penstock.errors import Corrupt, NotAQueue, WrongFormat
from penstock.store import layout as L
from penstock.store.backoff import Backoff

CHECK = "check"

SPILL_BYTES = 256 << 10  # what a queue gets unless somebody says otherwise
LEASE_S = 60.0
DURABILITY = "commit"
INDEX_SYNC_MS = 10_000
DEDUP_WINDOW_S = 300.0
HISTORY_AGE_S = 7 * 86_400.0
BESIDE = "beside"  # dead letters: a queue of their own beside this one
DELETE = "delete"  # and none at all

Size = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(gt=0)]


class Options(msgspec.Struct, kw_only=True):
    """Identity, sizes and habits of a queue. Names that a later version adds are ignored."""

    penstock: int  # format version
    uuid: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    secret: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    slots: Positive
    data_bytes: Positive
    spill_bytes: Size
    lease_s: Annotated[float, msgspec.Meta(gt=0)]
    durability: str
    kernel_bytes: Positive
    kernel_dir: str | None = None
    notify: Literal["futex", "file"] = "futex"
    index_sync_ms: Size = INDEX_SYNC_MS  # 0: never in the background
    max_attempts: Positive | None = None  # deliveries of a message; None: no limit
    backoff: Backoff | None = None  # how long a message that failed waits
    dead_letter: str = BESIDE  # where to with a message that failed too often: BESIDE, DELETE or a path
    expired: Literal["drop", "dead_letter"] = "drop"
    dedup_entries: Size = 0  # how many puts are remembered; 0: none, as in queues of earlier versions
    dedup_window_s: Annotated[float, msgspec.Meta(gt=0)] = DEDUP_WINDOW_S
    history_bytes: Size = 0  # of all files with what became of messages; 0: none are kept
    history_age_s: Annotated[float, msgspec.Meta(gt=0)] = HISTORY_AGE_S
    exclusive_keys: bool = False  # of a key one message at a time is delivered
    home: list[int] | None = None  # inode and time of birth of the directory, where it has files elsewhere
    data_files: list[tuple[str, Positive]] = []
    slots_most: Size = 0  # the most that there were before the number of slots was changed; 0: it never was

    def regions(self) -> dict[int, int]:
        """Header words of its kernel that follow from its sizes, of which that of the kernel tells whether it was made
        before there were trees."""
        slots = self.slots + 1 + len(self.data_files)
        before = L.regions(slots, self.dedup_entries, trees=False)
        if before[L.H_KERNEL_BYTES] == self.kernel_bytes and not self.exclusive_keys:
            return before
        return L.regions(slots, self.dedup_entries, exclusive=self.exclusive_keys)

    @property
    def signature(self) -> int:
        return int(self.secret, 16)

    @property
    def uuid_words(self) -> tuple[int, int]:
        number = int(self.uuid.replace("-", ""), 16)
        return number & L.MASK64, number >> 64


REQUIRED = frozenset(field.name for field in msgspec.structs.fields(Options) if field.required)


def encode(options: Options) -> bytes:
    """The bytes of a ``queue.json``: the options and the checksum of what they say."""
    said = msgspec.to_builtins(options)
    return msgspec.json.format(msgspec.json.encode({**said, CHECK: _sum(said)}), indent=1)


def _sum(said: dict[str, Any]) -> str:
    return f"{zlib.crc32(msgspec.json.encode(said)):08x}"


def parse(text: bytes, queue: str, path: str) -> Options:
    """What the bytes of a ``queue.json`` say, or the error that explains why this is not a queue to be opened."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(path, offset=0, expected="JSON", found=str(error)) from error
    if not isinstance(raw, dict) or "penstock" not in raw:
        raise NotAQueue(f"{queue}: not a queue: its queue.json is not Penstock's")
    if raw["penstock"] != L.FORMAT:
        raise WrongFormat(
            f"{queue}: format {raw['penstock']}; this version of Penstock reads format {L.FORMAT}. Use a newer Penstock"
        )
    said = {name: value for name, value in raw.items() if name != CHECK}
    if CHECK in raw and raw[CHECK] != _sum(said):  # a wrong secret would make all records look damaged
        raise Corrupt(path, offset=0, expected=f"options with the checksum {raw[CHECK]}", found=_sum(said))
    missing = REQUIRED - raw.keys()
    if missing:
        raise Corrupt(path, offset=0, expected=f"the options {', '.join(sorted(missing))}", found="none")
    try:
        options = msgspec.convert(raw, Options)
    except msgspec.ValidationError as error:
        raise Corrupt(path, offset=0, expected="the options of a queue", found=str(error)) from error
    if not options.data_files:
        raise Corrupt(path, offset=0, expected="at least one data file", found="none")
    entries = options.dedup_entries
    if entries % L.REMEMBERED_BUCKET or entries & (entries - 1):
        raise Corrupt(path, offset=0, expected="a power of two of dedup_entries", found=str(entries))
    if any(size % L.PAGE_BYTES for _, size in options.data_files):
        raise Corrupt(path, offset=0, expected="data files of whole pages", found=str(options.data_files))
    return options
