"""Owns the answer to "is this queue whole?" (S6): the words of its kernel, its records, its other files. Only reads;
the way back is ``restore.py``.

The kernel is looked at in a private copy, taken under the lock, so that a live queue is not held up. What must hold
between its words is ``imagecheck.py``'s.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from penstock.errors import Corrupt, WrongFormat
from penstock.store import claimfiles, publishfiles, record
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles, body_name
from penstock.store.findings import FINDINGS_MAX, Finding
from penstock.store.hashes import Hashes
from penstock.store.image import LIVE, Image
from penstock.store.imagecheck import check_image
from penstock.store.options import Options
from penstock.store.publishfiles import PublishFiles
from penstock.store.resizing import CUT_SHORT, NEXT, is_cut_short
from penstock.store.trust import UNNOTED, needed


def check_records(image: Image, files: LocalFiles, signature: int) -> None:
    """Every live message's record is there and whole, its slot agrees with it, and so is its body if that is a file."""
    spilled_bytes = 0
    moved = False
    hashes = Hashes(signature)
    for slot in range(image.files + 1, image.view[L.H_FRESH]):
        if image.state(slot) not in (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED):
            continue
        fault = record_fault(image, files, signature, slot)
        # The copy is older than the data: only a slot that has not moved on since can be said to be wrong.
        live = int.from_bytes(files.kernel[_slot_byte(image, slot) : _slot_byte(image, slot) + 8], "little")
        if live >> L.NUMBER_SHIFT != image.number(slot) or (live >> L.STATE_SHIFT) & 0xF not in LIVE:
            moved = True
        elif fault:
            path, offset = files.place_of(image.place(slot)[0])
            if len(image.findings) < FINDINGS_MAX:
                image.findings.append(Finding(path, offset, f"message {image.number(slot)}: {fault}"))
        else:
            spilled_bytes += _check_slot(image, files, slot, hashes)
    if not moved and not image.findings:
        for slot in range(image.files + 1, image.view[L.H_FRESH]):
            if image.state(slot) == L.STATE_FILLING and image.slot(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED:
                spilled_bytes += image.slot(slot, L.S_LEASE_US)
        for head in (L.H_RETAINED, L.H_RETIRING):
            for slot in image.walk(image.view[head], L.S_CHAIN, "a list of retained slots"):
                if image.slot(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED:
                    spilled_bytes += image.slot(slot, L.S_LEASE_US)
        image.expect(L.H_SPILLED_BYTES, "the bytes of bodies in files", spilled_bytes)


def _check_slot(image: Image, files: LocalFiles, slot: int, hashes: Hashes) -> int:
    """What a slot says of its message against the record; the bytes of its body in a file."""
    unit, units = image.place(slot)
    head = L.RECORD.unpack_from(data := files.read(unit, units))
    info = image.slot(slot, L.S_INFO)
    flags, codec, priority = info >> L.FLAGS_SHIFT & 0xFF, info >> L.CODEC_SHIFT & 0xFF, info & 0xFF
    flags &= ~L.FLAG_HELD
    if image.kernel.trees_at and not head[9] & L.FLAG_CLASSED:  # put before there were trees: its meta says it
        flags &= ~L.FLAG_CLASSED
    later = head[9] & L.FLAG_READY and not flags & L.FLAG_READY  # released with a delay
    if (flags | (L.FLAG_READY if later else 0), codec, priority) != (head[9], head[10] >> 4, head[10] & 0xF):
        image.say_slot(slot, L.S_INFO, "flags, codec or priority are not those of its record")
    if image.slot(slot, L.S_DELIVER_US) != head[3] and (flags & L.FLAG_READY or not info >> L.ATTEMPTS_SHIFT):
        image.say_slot(slot, L.S_DELIVER_US, "its delivery time is not that of its record")
    if image.kernel.trees_at:
        _check_hashes(image, slot, hashes, data[L.RECORD_BYTES : L.RECORD_BYTES + head[8]])
    return L.SPILL.unpack_from(data, L.RECORD_BYTES + head[8])[0] if head[9] & L.FLAG_SPILLED else 0


def _check_hashes(image: Image, slot: int, hashes: Hashes, meta: bytes) -> None:
    trees = image.kernel.classes.trees
    if hashes.read(meta) != image.kernel.is_classed(slot):
        image.say_slot(slot, L.S_INFO, "its flag says of type and key what its record does not")
    elif image.kernel.is_classed(slot) and (
        (hashes.type_hash, hashes.key_hash) != (trees.type_of(slot), trees.key_of(slot))
    ):
        at = trees.links_at(L.B_TYPES, slot) + L.X_TYPE
        image.say(at, f"slot {slot}: the hashes of type and key are not those of its record")


def _slot_byte(image: Image, slot: int) -> int:
    return (image.slots_at + slot * L.SLOT_WORDS) * L.WORD_BYTES


def record_fault(image: Image, files: LocalFiles, signature: int, slot: int) -> str | None:
    unit, units = image.place(slot)
    try:
        data = files.read(unit, units)
    except Corrupt as error:
        return str(error)
    number = image.number(slot)
    fault = record.fault(data, signature, number, slot, unit)
    if fault is None and L.RECORD.unpack_from(data)[9] & L.FLAG_SPILLED:
        name = body_name(number, slot)
        length, check = L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])
        try:
            if files.sum_body(name) == (length, check):
                return None
        except OSError as error:
            return f"its body, a file of {length} bytes, cannot be read: {error}"
        return f"its body, a file of {length} bytes, is damaged: {files.body_path(name)}"
    return fault


# ---------------------------------------------------------------- on a queue directory


def _copy(files: LocalFiles) -> Image:
    """Under the lock: the kernel as it is, what a dead process left half-done put right in the copy."""
    image = Image(bytearray(files.kernel), files.kernel_path)
    image.words.begin()
    batch = list(image.walk(image.view[L.H_INCOMING], L.S_CHAIN, "the incoming batch"))
    odd = [slot for slot in batch if slot <= image.files or image.state(slot) != L.STATE_FILLING]
    if odd or image.findings:
        raise Corrupt(
            image.path,
            offset=L.H_INCOMING * L.WORD_BYTES,
            expected="a batch of filled slots",
            found=f"slots {batch[:10]}, of which {odd[:10]} are not being filled",
        )
    image.kernel.recover()
    return image


def check_queue(path: str | os.PathLike[str], *, deep: bool = True, busy_s: float = 10.0) -> list[Finding]:
    """What is wrong with a queue; nothing if the list is empty. Only reads, and works while others use the queue.

    ``deep`` checks every message's record too.
    """
    where = Path(os.path.abspath(path))
    if is_cut_short(where):
        return [Finding(str(where / NEXT), 0, CUT_SHORT)]
    options = read_options(where)
    try:
        files = LocalFiles(where, options, busy_s=busy_s)
    except Corrupt as error:
        return [Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}")]
    with contextlib.closing(files):
        return check_files(files, options, deep=deep)


def check_files(files: LocalFiles, options: Options, *, deep: bool) -> list[Finding]:
    with held(files):
        features = files.kernel[L.H_FEATURES * L.WORD_BYTES : (L.H_FEATURES + 1) * L.WORD_BYTES]
        findings = _header_findings(files, options)
        if int.from_bytes(features, "little") & ~L.FEATURES and len(findings) <= 1:
            raise WrongFormat(f"{files.name}: a newer Penstock keeps things in this queue that this one does not know")
        if findings:
            return findings
        reason = reason_of(files)
        findings = [] if reason is None or reason == UNNOTED else [due(files, reason)]
        try:
            image = _copy(files)
        except Corrupt as error:
            return findings or [
                Finding(files.kernel_path, error.offset, f"expected {error.expected}, found {error.found}")
            ]
    check_image(image)
    if deep and not image.findings:
        check_records(image, files, options.signature)
        findings += _claim_findings(files, options)
        findings += _publisher_findings(files, options)
    return findings + image.findings


def _claim_findings(files: LocalFiles, options: Options) -> list[Finding]:
    """Files of claims that cannot be read."""
    findings = []
    for name in claimfiles.receivers(files.path):
        claims = ClaimFiles(files.path, name, options.signature)
        reads: list[Callable[[], object]] = [partial(claims.read, number) for number in claims.numbers()]
        reads += [partial(claims.verdicts, number) for number in claims.judged()]
        for read in (claims.committed, claims.timeout_us, *reads):
            try:
                read()
            except Corrupt as error:
                findings.append(Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}"))
    return findings


def _publisher_findings(files: LocalFiles, options: Options) -> list[Finding]:
    """Files of publishers that cannot be read."""
    findings = []
    for name in publishfiles.publishers(files.path):
        try:
            PublishFiles(files.path, name, options.signature).read()
        except Corrupt as error:
            findings.append(Finding(error.path, error.offset, f"expected {error.expected}, found {error.found}"))
    return findings


def reason_of(files: LocalFiles) -> str | None:
    """Why the next to open the queue restores it; None if it does not. A living client's kernel is right."""
    with memoryview(files.kernel) as data, data.cast("Q") as words:
        reason = needed(files, words)
    return None if any(files.clients.alive(client) for client in range(L.CLIENTS)) else reason


def due(files: LocalFiles, reason: str) -> Finding:
    return Finding(files.kernel_path, L.H_BOOT_ID * L.WORD_BYTES, f"to be restored: {reason}")


def _header_findings(files: LocalFiles, options: Options) -> list[Finding]:
    view = memoryview(files.kernel).cast("Q")
    try:
        expected = options.regions()
        expected[L.H_UUID], expected[L.H_UUID + 1] = options.uuid_words
        expected[L.H_FILES] = len(options.data_files)
        expected[L.H_DATA_UNITS] = files.data_units
        return [
            Finding(
                files.kernel_path, word * L.WORD_BYTES, f"header word {word} is {view[word]:#x}, expected {value:#x}"
            )
            for word, value in expected.items()
            if view[word] != value
        ]
    finally:
        view.release()


@contextlib.contextmanager
def held(files: LocalFiles) -> Iterator[None]:
    try:
        files.lock.acquire()
        yield
    finally:
        files.lock.release()
