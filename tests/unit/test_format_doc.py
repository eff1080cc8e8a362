"""docs/format.md says what layout.py says: every name, offset, size and formula, in both directions."""

from __future__ import annotations

import json
import random
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import codec
from penstock.store import layout as L
from penstock.store import outcomes, record
from penstock.store.files import body_name
from penstock.store.hashes import Hashes, hash_of
from penstock.store.kernel import Kernel
from penstock.store.words import Words

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/format.md").read_text()

# Prefixes of names that are offsets of words, and how many bytes the structure has that they lie in.
STRUCTURES = {
    "H_": L.HEADER_WORDS * L.WORD_BYTES,
    "J_": L.JOURNAL_WORDS * L.WORD_BYTES,
    "T_": L.STATS_WORDS * L.WORD_BYTES,
    "C_": L.CLIENT_WORDS * L.WORD_BYTES,
    "N_": L.RECEIVER_WORDS * L.WORD_BYTES,
    "P_": L.PUBLISHER_WORDS * L.WORD_BYTES,
    "D_": L.REMEMBERED_WORDS * L.WORD_BYTES,
    "S_": L.SLOT_BYTES,
    "B_": L.CLASS_WORDS * L.WORD_BYTES,
    "X_": L.TREE_WORDS * L.WORD_BYTES,
    "R_": L.RECORD_BYTES,
}
WHOLE = ("J_", "S_", "R_", "D_", "X_")  # no byte of these is left over


class Table(NamedTuple):
    heading: str
    columns: list[str]
    rows: list[list[str]]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables() -> list[Table]:
    found: list[Table] = []
    heading = ""
    inside = False
    for line in TEXT.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            inside = False
        elif not inside:
            found.append(Table(heading, _cells(line), []))
            inside = True
        elif not line.startswith("|---"):
            found[-1].rows.append(_cells(line))
    return found


def table(heading: str, *columns: str) -> list[list[str]]:
    (only,) = [t for t in tables() if t.heading == heading and t.columns == list(columns)]
    return only.rows


def _name(cell: str) -> str | None:
    found = re.fullmatch(r"`(\w+)`", cell)
    return found.group(1) if found else None


def documented_words() -> dict[str, tuple[int, int]]:
    """Byte offset and bytes by name."""
    found: dict[str, tuple[int, int]] = {}
    for t in tables():
        if t.columns[:3] == ["name", "byte", "bytes"]:
            for row in t.rows:
                name = _name(row[0])
                if name:
                    assert name not in found, f"{name} is documented twice"
                    found[name] = int(row[1]), int(row[2])
    return found


def documented_numbers() -> dict[str, int]:
    found: dict[str, int] = {}
    for t in tables():
        if t.columns[:2] == ["name", "value"]:
            for row in t.rows:
                name = _name(row[0])
                assert name and name not in found, f"{row[0]} is documented twice, or is no name"
                found[name] = int(row[1], 0)
    return found


def _constants(module: Any) -> dict[str, int]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, int)}


def _is_word(name: str) -> bool:
    return name == "LIST_COUNT" or name[:2] in STRUCTURES


LAYOUT = _constants(L)
CODECS = {name: value for name, value in _constants(codec).items() if name.startswith("CODEC_")}
WORDS = documented_words()
NUMBERS = documented_numbers()


def test_every_offset_is_documented_and_nothing_else_is() -> None:
    expected = {name: value * L.WORD_BYTES for name, value in LAYOUT.items() if _is_word(name)}
    assert {name: byte for name, (byte, _) in WORDS.items()} == expected


def test_every_other_number_is_documented_and_nothing_else_is() -> None:
    expected = {name: value for name, value in LAYOUT.items() if not _is_word(name)}
    assert expected | CODECS == NUMBERS


@pytest.mark.parametrize("prefix", STRUCTURES)
def test_words_neither_overlap_nor_leave_their_structure(prefix: str) -> None:
    spans = sorted(span for name, span in WORDS.items() if name.startswith(prefix))
    end = 0
    for byte, size in spans:
        assert byte >= end and byte % L.WORD_BYTES == 0 and size % L.WORD_BYTES == 0
        assert prefix not in WHOLE or byte == end
        end = byte + size
    assert end <= STRUCTURES[prefix]
    assert prefix not in WHOLE or end == STRUCTURES[prefix]


def test_a_list_is_its_lanes_and_its_count() -> None:
    rows = table("Lists", "name", "byte", "bytes", "meaning")
    assert [(int(row[1]), int(row[2])) for row in rows] == [
        (0, (L.LANES + 1) * L.WORD_BYTES),
        (L.LIST_COUNT * L.WORD_BYTES, L.WORD_BYTES),
    ]
    assert L.LIST_COUNT == L.LANES + 1 == L.LIST_WORDS - 1
    assert L.LIST_READY + L.PRIORITIES == L.LIST_TIMED
    assert L.LIST_TIMED + L.PRIORITIES == L.LIST_LEASES < L.LISTS


def test_the_regions_are_documented_in_their_order_with_their_sizes() -> None:
    header = L.regions(50_000, 1024)
    rows = table("The kernel file", "region", "where", "bytes")
    assert rows[0][:2] == ["header", "byte 0"]
    names = [name for row in rows[1:] if (name := _name(row[1]))]
    assert len(names) == len(rows) - 1
    starts = [header[LAYOUT[name]] for name in names]
    assert starts == sorted(starts)
    assert {LAYOUT[name] for name in names} == {LAYOUT[name] for name in LAYOUT if name.endswith("_AT")}
    sizes = [L.HEADER_WORDS * L.WORD_BYTES, L.JOURNAL_ENTRIES * L.JOURNAL_WORDS * L.WORD_BYTES]
    sizes += [L.STATS_WORDS * L.WORD_BYTES, L.LISTS * L.LIST_WORDS * L.WORD_BYTES]
    sizes += [L.CLIENTS * L.CLIENT_WORDS * L.WORD_BYTES]
    assert [int(re.match(r"\d+", row[2]).group()) for row in rows[:5]] == sizes  # type: ignore[union-attr]
    assert rows[5][2].startswith(f"`H_CLASSES` entries of {L.CLASS_WORDS * L.WORD_BYTES} bytes")
    assert rows[6][2].startswith(str(L.NAMES_BYTES))
    assert rows[7][2].startswith(f"`H_SLOTS` slots of {L.SLOT_BYTES} bytes")
    assert f"of {L.REMEMBERED_WORDS * L.WORD_BYTES} bytes" in rows[8][2]
    assert rows[9][2].startswith(f"`H_SLOTS` entries of {L.TREE_WORDS * L.WORD_BYTES} bytes")


def test_the_number_of_classes_is_as_described() -> None:
    for slots in (3, 31, 32, 1000, 1024, 1040, 1041, 65_538, 1_000_002, L.SLOTS_MAX):
        least = max(slots // 16, 64)
        assert L.class_entries(slots) == min(2**n for n in range(40) if 2**n >= least)


@pytest.mark.parametrize(
    "heading, field, shifts",
    [
        ("S_WORD", "number", {"number": L.NUMBER_SHIFT, "state": L.STATE_SHIFT, "check": 0}),
        (
            "S_INFO",
            "attempts",
            {
                "attempts": L.ATTEMPTS_SHIFT,
                "tag": L.TAG_SHIFT,
                "flags": L.FLAGS_SHIFT,
                "codec": L.CODEC_SHIFT,
                "priority": 0,
            },
        ),
        ("S_OWNER", "kind", {"kind": L.OWNER_CLIENT.bit_length() - 1, "client": L.CLIENT_SHIFT, "incarnation": 0}),
        ("S_PLACE", "first", {"first": L.PLACE_SHIFT, "units": 0}),
    ],
)
def test_bit_fields_start_where_the_code_looks(heading: str, field: str, shifts: dict[str, int]) -> None:
    (rows,) = [t.rows for t in tables() if t.columns == ["bits", "what"] and t.rows[0][1].startswith(field)]
    top = 64
    for (bits, what), (name, shift) in zip(rows, shifts.items(), strict=True):
        low, high = (int(number) for number in bits.split(" to "))
        assert what.startswith(name), heading
        assert (low, high) == (shift, top - 1)
        top = low
    assert top == 0


def test_masks_are_as_wide_as_their_fields() -> None:
    assert L.CHECK_MASK.bit_length() == L.STATE_SHIFT
    assert L.PLACE_MASK.bit_length() == L.PLACE_SHIFT
    assert L.INFO_LOW.bit_length() == L.ATTEMPTS_SHIFT
    assert L.CLIENT_MASK.bit_length() == L.OWNER_CLIENT.bit_length() - 1 - L.CLIENT_SHIFT
    assert L.MAGIC.to_bytes(8, "little") == b"PSTKKRN1"


# ---------------------------------------------------------------- formulas: the page's own code against the engine's


def _page_code() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, names)
    return names


PAGE = _page_code()


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    header = L.regions(100)
    words = Words(bytearray(header[L.H_KERNEL_BYTES]), "none")
    for index, value in header.items():
        words.raw(index, value)
    return Kernel(words)


def _some(limit: int) -> list[int]:
    rng = random.Random(1)
    return [0, 1, 2, limit - 1, *(rng.randrange(limit) for _ in range(2000))]


def test_the_level_of_a_number_is_as_described(kernel: Kernel) -> None:
    numbers = [*range(70_000), *_some(L.MASK48)]
    levels = [kernel.order.level(number) for number in numbers]
    assert levels == [PAGE["level"](number) for number in numbers]
    assert max(levels[:70_000]) >= 4  # else the comparison would show little


def test_the_height_of_a_number_is_as_described(kernel: Kernel) -> None:
    trees = kernel.classes.trees
    for number in [*range(1000), *_some(L.MASK48)]:
        kernel.words.raw(kernel.slots_at + 5 * L.SLOT_WORDS, kernel.word_of(5, number, L.STATE_WAITING))
        assert trees.height_of(5) == PAGE["height"](number)


@pytest.mark.parametrize("text", ["", "a", "example", "12345678", "123456789", "grüße@example.com" * 9, "x" * 70_000])
@pytest.mark.parametrize("is_key", [False, True])
def test_the_hash_of_a_type_or_key_is_as_described(text: str, is_key: bool) -> None:
    secret = 0xFEDCBA9876543210
    expected = PAGE["class_hash"](text, secret, is_key)
    assert hash_of(text, secret, is_key) == expected
    if len(text) < 60_000:
        hashes = Hashes(secret)
        assert hashes.read(codec.encode_meta(None if is_key else text, text if is_key else None, {"a": "b"}))
        assert (hashes.type_hash, hashes.key_hash) == ((0, expected) if is_key else (expected, 0))


def test_the_identity_word_is_as_described(kernel: Kernel) -> None:
    for slot, number in zip(_some(L.SLOTS_MAX), reversed(_some(L.MASK48)), strict=True):
        for state in (L.STATE_VACANT, L.STATE_WAITING, L.STATE_CLAIMED):
            assert kernel.word_of(slot, number, state) == PAGE["identity_word"](slot, number, state)


def test_the_check_bits_of_what_was_put_are_as_described(kernel: Kernel) -> None:
    for key, number in zip(_some(L.MASK64), reversed(_some(L.MASK48)), strict=True):
        word = kernel.remembered.last_word(key, number * 3, number, 77, L.PUT_SYNCED)
        assert word & L.MASK32 == 77 and word >> 62 == 1
        assert word >> 32 & L.REMEMBERED_CHECK == PAGE["remembered_check"](key, number * 3, number, 77)


@pytest.mark.parametrize("unit", [0, 5, 1 << 24, (1 << 32) + 7, (1 << 40) - 1])
@pytest.mark.parametrize(
    "meta, body", [(b"", b""), (b"", b"b" * 3000), (codec.encode_meta("t", "k", {"a": "b"}), b"b")]
)
def test_a_record_is_as_described(unit: int, meta: bytes, body: bytes) -> None:
    secret = 0x0123456789ABCDEF
    info = 7 << L.ATTEMPTS_SHIFT | L.FLAG_READY << L.FLAGS_SHIFT | codec.CODEC_JSON << L.CODEC_SHIFT | 9
    check = record.crc32(meta + body)
    data = record.build(secret, 42, 1_000, 2_000, 31, 5, 4, info, meta, body, check, unit)
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, L.RECORD_BYTES, 8)]
    assert words[L.R_SIGNATURE] == secret
    assert words[L.R_NUMBER] == 42
    assert words[L.R_ENQUEUED_US] == 1_000
    assert words[L.R_DELIVER_US] == 2_000
    assert words[L.R_SLOT_BATCH] == 31 | 5 << 32
    assert words[L.R_INDEX_LENGTH] == 4 | len(body) << 32
    low = len(meta) | L.FLAG_READY << 16 | 9 << 24 | codec.CODEC_JSON << 28
    assert words[L.R_META_CHECK] == low | PAGE["checksum"](data, meta, body, unit) << 32
    assert data[L.RECORD_BYTES :] == meta + body
    assert record.fault(data, secret, 42, 31, unit) is None
    for wrong in (
        (secret + 1, 42, 31, unit),
        (secret, 43, 31, unit),
        (secret, 42, 32, unit),
        (secret, 42, 31, unit + 1),
    ):
        assert record.fault(data, *wrong) is not None


def test_every_bit_of_a_record_counts() -> None:
    data = record.build(1, 2, 3, 4, 5, 1, 0, 0, b"", b"body", record.crc32(b"body"), 6)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert record.fault(bytes(changed), 1, 2, 5, 6) is not None, f"bit {bit}"


def test_meta_has_the_documented_keys() -> None:
    rows = table("Records", "key", "value")
    assert tuple(_name(row[0]) for row in rows) == codec.Meta.__struct_fields__


# ---------------------------------------------------------------- a real queue


def test_queue_json_has_the_documented_keys(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=8192).close()
    rows = table("queue.json", "key", "value")
    assert [_name(row[0]) for row in rows] == list(json.loads((path / "queue.json").read_text()))


def test_the_directory_holds_what_is_documented(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=8192).close()
    cells = [row[0] for row in table("The directory", "file", "what", "who touches it")]
    documented = {name.rstrip("/") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    made = {file.name for file in path.iterdir()}
    later = {
        "data.1",
        "claims",
        "damaged",
        "failures",
        "history",
        "moves",
        "published",
        "replies",
        "session",
        "staging",
        "resize.json",
        "kernel-next",
        "entry.json",
    }
    assert documented - made == later
    assert made <= documented
    assert [file.name for file in (path / "notify").iterdir()] == ["wakeup"]
    for name in ("lock", "clients", "notify/wakeup"):
        assert (path / name).stat().st_size == 0
    assert not any((path / "data.0").read_bytes())


def test_a_history_is_as_described(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=8192, durability="relaxed", history_bytes=1 << 20) as q:
        _, slot, number = q.put("a", type="t", priority=5).split("-")
        q.get().fail("no")
    (file,) = (path / "history").iterdir()
    assert re.fullmatch(r"\d{16}-\d+\.log", file.name)
    data = file.read_bytes()

    def parts(of: str, at: int) -> tuple[list[Any], int]:
        rows = table("History", f"of {of}, byte", "bytes", "meaning")
        assert [int(byte) for byte, _, _ in rows] == [
            sum(int(size) for _, size, _ in rows[:i]) for i in range(len(rows))
        ]
        found = [data[at + int(byte) : at + int(byte) + int(size)] for byte, size, _ in rows]
        return [int.from_bytes(part, "little") for part in found], at + sum(int(size) for _, size, _ in rows)

    (magic, said_bytes, check), at = parts("the head", 0)
    assert magic.to_bytes(8, "little") == b"PSTKHST1"
    said = data[at : at + said_bytes]
    assert zlib.crc32(said) == check
    assert set(json.loads(said)) == {"uuid", "id_prefix", "pid", "client", "started_us"}
    start = at + said_bytes
    (magic, rows, heap_bytes, check, head_check), at = parts("a block", start)
    assert (magic.to_bytes(8, "little"), rows) == (b"PSTKHBLK", 1)
    assert zlib.crc32(data[at:]) == check and zlib.crc32(data[start : start + 20]) == head_check
    row, end = parts("a row", at)
    assert end - at == outcomes.ROW_BYTES and len(data) == end + heap_bytes
    assert (row[0], row[5], row[6], row[7]) == (int(number, 16), int(slot, 16), 1, 2 | 5 << 4)
    assert 0 < row[1] <= row[3] <= row[4] and row[2] == row[1]
    assert data[end + row[8] :] == codec.encode_meta("t", None, None) + b"\0no"
    assert (row[9], row[10]) == (heap_bytes - 3, 3)
    results = {int(code): name for code, name in table("History", "result", "meaning")}
    assert results == outcomes.RESULTS


def test_a_spilled_body_is_as_described(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16, spill_bytes=100, durability="relaxed") as q:
        q.put(b"small")
        tag, slot, number = q.put(b"x" * 500).split("-")
        (file,) = (path / "bodies").iterdir()
        assert file.name == body_name(int(number, 16), int(slot, 16)) == f"{number:0>12}-{slot}"
        assert file.read_bytes() == b"x" * 500
        assert tag == json.loads((path / "queue.json").read_text())["uuid"].replace("-", "")[:16]
        reference = (path / "data.0").read_bytes()[L.UNIT_BYTES + L.RECORD_BYTES :][: L.SPILL.size]
        rows = table("Bodies in files", "byte", "bytes", "meaning")
        parts = [reference[int(at) : int(at) + int(size)] for at, size, _ in rows]
        assert b"".join(parts) == reference
        assert [int.from_bytes(part, "little") for part in parts] == [500, record.crc32(b"x" * 500), 0]
    assert body_name(42, 31) == "00000000002a-1f" and "`00000000002a-1f` is message 42 in slot 31" in TEXT


def test_the_header_of_a_new_queue_is_as_described(path: Path) -> None:
    with penstock.create(path, slots=100, data_bytes=1 << 16) as q:
        uuid = q.stats().uuid
    kernel = (path / "kernel").read_bytes()

    def word(name: str) -> int:
        byte, size = WORDS[name]
        return int.from_bytes(kernel[byte : byte + size], "little")

    assert f"{word('H_UUID'):032x}" == uuid.replace("-", "")
    assert word("H_SLOTS") == 100 + 1 + 1
    assert word("H_NUMBER_NEXT") == 1
    assert word("H_FRESH") == 2
    assert word("H_CURSOR") == 1
    assert word("H_KERNEL_BYTES") == len(kernel)
    rows = table("Header", "name", "byte", "bytes", "meaning")
    reserved = {str(_name(row[0])) for row in rows if "*reserved*" in row[3].lower()}
    assert reserved >= {"H_EPOCH", "H_CHANGE"}
    assert word("H_FEATURES") == L.FEATURE_CLASSES | L.FEATURE_REMEMBERED
    assert not any(word(name) for name in reserved)
    named = bytearray(L.HEADER_WORDS * L.WORD_BYTES)
    for name, (byte, size) in WORDS.items():
        if name.startswith("H_"):
            named[byte : byte + size] = b"\xff" * size
    assert not any(value for value, used in zip(kernel, named, strict=False) if not used)


def test_the_invariants_are_numbered_without_a_gap() -> None:
    section = TEXT.split("\n## Invariants\n")[1].split("\n## ")[0]
    numbers = [int(n) for n in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
