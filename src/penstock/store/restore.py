"""Owns the way back (S7): after a power loss, a failed sync, damage or a copy, from the records to a whole kernel.

Believes ``queue.json``, the slots' identity words, the number limit, and records whose checksum holds; nothing else of
the kernel, whose pages reach the disk in any order. The new kernel is made in private memory (``scan.py``) and written
back so that a restore that is cut short, and then done again, ends the same. Never decides by a clock. The caller holds
the lock, and no client is alive.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import uuid
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store import record
from penstock.store.directory import write_options
from penstock.store.files import QUEUE_JSON, LocalFiles, body_name, private_memory
from penstock.store.findings import Finding, Findings
from penstock.store.hashes import Hashes
from penstock.store.image import Image
from penstock.store.kernel import NUMBERS_AHEAD, Kernel
from penstock.store.options import Options
from penstock.store.publishing import Publishing
from penstock.store.recalling import Recall
from penstock.store.refinding import FoundClaims, FoundPublishers
from penstock.store.scan import Scan
from penstock.store.searching import CHUNK_UNITS, DataFile
from penstock.store.trust import COPIED, IDENTITY, UNNOTED, changed
from penstock.store.trust import needed as needed
from penstock.store.words import Words, compiled
from penstock.store.writeback import write_back, write_published

DAMAGED = "damaged"
THREADS = 2  # that look for records, or write: with more, memory is what they wait for
CHUNKS_AHEAD = 4  # that are looked at, or wait to be noted
PIECE_WORDS = 1 << 20  # 8 MiB of a kernel are written by one thread
PIECE_SLOTS = PIECE_WORDS // L.SLOT_WORDS
SET_ASIDE_MAX = 1000  # a relaxed queue may have lost the records of many messages: there is nothing in them to keep
NUMBER_LIMIT_MAX = 1 << 47  # half of all numbers: no queue got there by giving them
NUMBERS_SKIPPED_MAX = 1 << 40  # by a backup when it is first opened

Progress = Callable[[int, int], None]


def restore(
    files: LocalFiles,
    options: Options,
    *,
    after_power_loss: bool,
    progress: Progress | None = None,
    rewrite: bool = False,
) -> list[Finding]:
    """Make the kernel anew from the records; what was found wrong on the way.

    Without ``after_power_loss`` the kernel's pages are current, so what a dead process left half-done is undone or
    finished first. With ``rewrite`` every record is written again: after a sync that failed, pages look clean that the
    disk does not have. A copied queue gets a new UUID, in ``options`` too.
    """
    with Restore(files, options, after_power_loss=after_power_loss) as work:
        work.mark()  # at once: who waits for the lock sees that it may take long
        work.read(progress)
        work.write(rewrite=rewrite)
        return work.findings.said


class Restore:
    """One restore: ``read`` makes the new kernel in private memory and changes nothing, ``write`` makes it true."""

    def __init__(self, files: LocalFiles, options: Options, *, after_power_loss: bool) -> None:
        self.files = files
        self.options = options
        self.findings = Findings()
        self._aside: list[tuple[str, bytes | None, dict[str, object]]] = []  # name, record, what is known of it
        self._bodies_aside: list[str] = []
        self._claims = FoundClaims(files, options, self.findings)
        self._publishers = FoundPublishers(files, options, self.findings)
        self.old = memoryview(files.kernel).cast("Q")
        self.changed = changed(files, self.old)
        self.lost = self.old[L.H_REPAIRING] == L.KERNEL_LOST
        self._cut_short = bool(self.old[L.H_REPAIRING])
        self._unsure = bool(self.old[L.H_REPAIRING] or self.old[L.H_SYNC_FAILED])  # of pages that look clean
        self.trusted = not after_power_loss and not self.old[L.H_REPAIRING] and self._is_unchanged()
        self._header = options.regions()
        if self._header[L.H_KERNEL_BYTES] != options.kernel_bytes:
            raise Corrupt(
                str(files.path / QUEUE_JSON),
                offset=0,
                expected=f"a kernel of {self._header[L.H_KERNEL_BYTES]} bytes for {options.slots} slots",
                found=f"{options.kernel_bytes} bytes",
            )
        self.image = memoryview(private_memory(options.kernel_bytes)).cast("Q")
        self._fill_header()
        self.kernel = Kernel(Words(self.image, f"{files.kernel_path} (new)"))
        self.scan = Scan(self.image, self.kernel, len(options.data_files), options.signature)

    def __enter__(self) -> Restore:
        return self

    def __exit__(self, *_: object) -> None:
        self.old.release()

    def _is_unchanged(self) -> bool:
        """Where nobody noted whose kernel it is, the caller knows better than we."""
        return self.changed is None or all(self.old[word] == 0 for word in IDENTITY)

    # ------------------------------------------------------------ reading

    def read(self, progress: Progress | None) -> None:
        """Find the records, decide what lives, link it."""
        if self.changed == COPIED:
            where = str(self.files.path / QUEUE_JSON)
            self.findings.say(where, 0, f"this is a copy of queue {self.options.uuid}: it gets a UUID of its own")
        self._search(progress)
        if self.lost:
            self.scan.forget_batches()
        believed = self.old if not self.trusted else self._settled()
        self._claims.read(self.scan)
        self.scan.decide(believed, not self.trusted, not self.trusted)
        self._give_up_without_body(believed)
        # Before bodies of their own are looked at: a lost one was published, too.
        self._publishers.look(self.kernel, believed, names_at=self._header[L.H_NAMES_AT], lost=self.lost)
        for slot in self.scan.damaged:
            self._say_slot(slot, f"slot {slot}: the identity word {believed[self._at(slot)]:#018x} is damaged")
        for slot in self.scan.lost:
            self._lose(slot, believed)
        self.image[L.H_SPILLED_BYTES] = sum(
            self._spilled_bytes(slot) for slot in self.scan.spilled if self._is_live(slot)
        )
        self.scan.link()
        self._classify()
        self._count_on()
        self._claims.claim_again(self.kernel)
        self._publishers.publish_again(self.kernel)
        if self.options.dedup_entries:
            recall = Recall(self.kernel, believed, cut_short=self._cut_short)
            recall.keep()
            recall.add_live(self.files, self.options.signature, self.scan.remembered)
        self.findings.end(self.files.kernel_path)

    def _fill_header(self) -> None:
        view = self.image
        for word, value in self._header.items():
            view[word] = value
        view[L.H_UUID], view[L.H_UUID + 1] = self.options.uuid_words
        view[L.H_DATA_UNITS] = self.files.data_units
        view[L.H_FILES] = len(self.options.data_files)
        for i, (start, _, _) in enumerate(self.files.mappings()):
            view[view[L.H_SLOTS_AT] + (i + 1) * L.SLOT_WORDS + L.S_PLACE] = start << L.PLACE_SHIFT

    def _at(self, slot: int) -> int:
        return self.kernel.slots_at + slot * L.SLOT_WORDS

    def _say_slot(self, slot: int, what: str) -> None:
        self.findings.say(self.files.kernel_path, self._at(slot) * L.WORD_BYTES, what)

    def _search(self, progress: Progress | None) -> None:
        """Where compiled code lets several threads run, two look at the next chunks while the last is noted."""
        chunk_units = min(CHUNK_UNITS, self.files.data_units)
        ahead = CHUNKS_AHEAD if compiled and chunk_units == CHUNK_UNITS else 1
        buffers = [array("Q", bytes(L.WORD_BYTES * L.RECORD_WORDS * chunk_units)) for _ in range(ahead)]
        with contextlib.ExitStack() as stack:
            threads = stack.enter_context(ThreadPoolExecutor(THREADS)) if ahead > 1 else None
            for i, (start, end, mapping) in enumerate(self.files.mappings()):
                self.scan.begin_file(i + 1)
                with DataFile(self.scan, self.old, mapping, start, end) as file:
                    for unit in file.search(threads, buffers):
                        if progress:
                            progress(unit * L.UNIT_BYTES, self.files.data_units * L.UNIT_BYTES)

    def _settled(self) -> memoryview:
        """A copy of a kernel whose pages are current, without what a dead process left half-done."""
        data = bytearray(self.files.kernel)
        view = memoryview(data).cast("Q")
        for word, value in self._header.items():
            view[word] = value
        view[L.H_FILES] = len(self.options.data_files)
        image = Image(data, self.files.kernel_path)
        with contextlib.suppress(Corrupt):  # a journal that cannot be is no journal
            image.words.rollback()
        publisher = view[L.H_PUBLISHER]
        if publisher and Publishing(self.kernel).is_entry(publisher):
            view[publisher + L.P_LAST] = view[publisher + L.P_NEXT]
        for slot in image.walk(view[L.H_INCOMING], L.S_CHAIN, "the incoming batch"):
            if image.state(slot) == L.STATE_FILLING:  # published, although its word does not say so yet
                view[self._at(slot)] = self.kernel.word_of(slot, image.number(slot), L.STATE_WAITING)
        return view

    def _lose(self, slot: int, believed: memoryview) -> None:
        """The word says that there is a message, and no record does."""
        at = self._at(slot)
        number = believed[at] >> L.NUMBER_SHIFT
        unit, units = believed[at + L.S_PLACE] >> L.PLACE_SHIFT, believed[at + L.S_PLACE] & L.PLACE_MASK
        data = None
        if 0 < units <= L.units(self.options.spill_bytes + L.META_BYTES_MAX):
            with contextlib.suppress(Corrupt):  # a place outside the data files is none
                data = self.files.read(unit, units)
        if data is None:
            self._say_slot(slot, f"message {number}: its record is lost")
            return
        fault = record.fault(data, self.options.signature, number, slot, unit) or "inside another record"
        path, offset = self.files.place_of(unit)
        self.findings.say(path, offset, f"message {number}: {fault}; it is set aside in {DAMAGED}/")
        self._set_aside(slot, number, unit, data, fault)

    def _give_up_without_body(self, believed: memoryview) -> None:
        """The body of a message that was synced goes when its put is given up, or when the index was synced after its
        message had gone. So where the slot's word does not know the message and the body is not there, it was given up,
        and with it its batch. A claim that names it knows better."""
        if self.lost or not self.scan.spilled:
            return
        there = set(self.files.body_names())
        for slot in self.scan.spilled:
            at = self._at(slot)
            number = self.image[at] >> L.NUMBER_SHIFT
            batched = (self.image[at + L.S_INFO] >> L.FLAGS_SHIFT) & L.FLAG_BATCHED
            missing = batched and self._is_live(slot) and body_name(number, slot) not in there
            known = missing and (self.scan.was_published(slot, number, believed) or self._claims.name(slot, number))
            if missing and not known:
                self.scan.give_up(slot, believed)

    def _classify(self) -> None:
        """The trees by type and key, of messages that have one: nothing of the old ones is believed. Those that have a
        meta and neither of both are no longer said to have one."""
        hashes = Hashes(self.options.signature)
        for slot in self.scan.classed:
            if self._is_live(slot):
                place = self.image[self._at(slot) + L.S_PLACE]
                data = self.files.read(place >> L.PLACE_SHIFT, place & L.PLACE_MASK)
                if hashes.read(data[L.RECORD_BYTES : L.RECORD_BYTES + L.RECORD.unpack_from(data)[8]]):
                    self.kernel.readmit(slot, hashes.type_hash, hashes.key_hash)
                else:
                    self.image[self._at(slot) + L.S_INFO] &= ~(L.FLAG_CLASSED << L.FLAGS_SHIFT)

    def _is_live(self, slot: int) -> bool:
        word = self.image[self._at(slot)]
        return bool(word == self.kernel.word_of(slot, word >> L.NUMBER_SHIFT, L.STATE_WAITING))

    def _spilled_bytes(self, slot: int) -> int:
        """Bytes of the body of a message that is a file; if that is not right, the message is gone."""
        at = self._at(slot)
        unit, units = self.image[at + L.S_PLACE] >> L.PLACE_SHIFT, self.image[at + L.S_PLACE] & L.PLACE_MASK
        number = self.image[at] >> L.NUMBER_SHIFT
        data = self.files.read(unit, units)
        head = L.RECORD.unpack_from(data)
        name = body_name(number, slot)
        length, check = L.SPILL.unpack_from(data, L.RECORD_BYTES + head[8]) if head[7] == L.SPILL.size else (0, 0)
        try:
            found = self.files.sum_body(name)
        except FileNotFoundError:
            fault = f"its body, a file of {length} bytes, is not there: {self.files.body_path(name)}"
        else:
            if head[7] == L.SPILL.size and found == (length, check):
                return int(length)
            fault = (
                f"its body {self.files.body_path(name)} has {found[0]} bytes with checksum {found[1]:08x}, "
                f"expected {length} with {check:08x}"
            )
            self._bodies_aside.append(name)
        path, offset = self.files.place_of(unit)
        self.findings.say(path, offset, f"message {number}: {fault}; it is set aside in {DAMAGED}/")
        self._set_aside(slot, number, unit, data, fault)
        self.scan.drop(slot)
        return 0

    def _set_aside(self, slot: int, number: int, unit: int, data: bytes, fault: str) -> None:
        if len(self._aside) < SET_ASIDE_MAX:
            path, offset = self.files.place_of(unit)
            known: dict[str, object] = {
                "slot": slot,
                "number": number,
                "path": path,
                "offset": offset,
                "bytes": len(data),
                "fault": fault,
            }
            self._aside.append((body_name(number, slot), data, known))

    def _count_on(self) -> None:
        """Numbers that were never given, and the statistics, which are only numbers."""
        view = self.image
        limit = self.old[L.H_NUMBER_LIMIT]
        if not self.scan.highest < limit < NUMBER_LIMIT_MAX:
            if not self.lost:  # else it is known
                self.findings.say(
                    self.files.kernel_path,
                    L.H_NUMBER_LIMIT * L.WORD_BYTES,
                    f"the number limit is {limit}, with numbers up to {self.scan.highest}",
                )
            limit = self.scan.highest + NUMBERS_AHEAD
        if self.changed == UNNOTED:
            # Others with this UUID may go on from the same number: copies of this backup, or its original.
            limit += secrets.randbelow(max(min(NUMBERS_SKIPPED_MAX, (NUMBER_LIMIT_MAX - limit) // 2), 1))
        view[L.H_NUMBER_NEXT] = view[L.H_SETTLED] = limit
        view[L.H_NUMBER_LIMIT] = view[L.H_NUMBER_SAFE] = limit + NUMBERS_AHEAD
        stats_at = view[L.H_STATS_AT]
        view[stats_at : stats_at + L.STATS_WORDS] = self.old[stats_at : stats_at + L.STATS_WORDS]
        view[stats_at + L.T_RESTORES] = (view[stats_at + L.T_RESTORES] + 1) & L.MASK64
        for word in range(L.T_RATES_TICK, L.T_RATES + L.RATES * L.RATE_WORDS):
            view[stats_at + word] = 0  # they are of another boot, whose time says nothing

    # ------------------------------------------------------------ writing

    def write(self, *, rewrite: bool) -> None:
        """Cut short anywhere, the next open sees that it was, and does it again from what is still believed."""
        self._keep_damaged()
        if self.changed == COPIED:
            # Before the kernel forgets whose it was: if power is lost in between, it is still a copy. And marked: a
            # kernel with another UUID than queue.json is then known to be on its way, and not somebody else's.
            self.mark()
            self.options.uuid = str(uuid.uuid4())
            write_options(self.files.path, self.options)
            self.image[L.H_UUID], self.image[L.H_UUID + 1] = self.options.uuid_words
        old = self.old
        if rewrite or old[L.H_SYNC_FAILED]:
            self._rewrite()
        self._synced(self.files.sync_data)  # before the kernel, or a publisher's file, says that they are there
        self._publishers.settle()
        words = Words(self.files.kernel, self.files.kernel_path)
        try:
            self._write_kernel(words)
        finally:
            words.close()

    def mark(self) -> None:
        """The kernel is on its way: nobody believes it before the restore is through."""
        words = Words(self.files.kernel, self.files.kernel_path)
        try:
            self._mark(words)
        finally:
            words.close()
        self._synced(self.files.sync_kernel)

    def _synced(self, sync: Callable[[], None]) -> None:
        """A sync that fails leaves pages clean that the disk does not have: the next restore must know."""
        try:
            sync()
        except OSError as error:
            with contextlib.closing(Words(self.files.kernel, self.files.kernel_path)) as words:
                words.raw(L.H_SYNC_FAILED, error.errno or errno.EIO)
            raise

    def _mark(self, words: Words) -> None:
        words.raw(L.H_REPAIRING, L.KERNEL_LOST if self.lost else 1)

    def _keep_damaged(self) -> None:
        for name, data, known in self._aside:
            if data is not None:
                self.files.set_aside(DAMAGED, name, data)
            self.files.set_aside(DAMAGED, f"{name}.json", msgspec.json.format(msgspec.json.encode(known), indent=1))
        for name in self._bodies_aside:
            self.files.set_body_aside(DAMAGED, name)

    def _rewrite(self) -> None:
        """Every record once more: a sync that failed may have left its pages marked clean."""
        view = self.image
        slot = view[self._at(1) + L.S_RING] & L.MASK32
        while slot != 1:
            place = view[self._at(slot) + L.S_PLACE]
            if place & L.PLACE_MASK:
                unit = place >> L.PLACE_SHIFT
                self.files.write(unit, self.files.read(unit, place & L.PLACE_MASK))
            slot = view[self._at(slot) + L.S_RING] & L.MASK32

    def _write_kernel(self, words: Words) -> None:
        """The mark comes first and goes last, with the identity; a sync on either side of everything else."""
        for word in IDENTITY:
            words.raw(word, 0)
        self._mark(words)
        self._synced(self.files.sync_kernel)
        if self.scan.doubtful:
            # On disk before the words that say whose attempts these are, which are among the rest.
            for slot in self.scan.doubtful:
                words.raw(self._at(slot) + L.S_INFO, 0)
                words.raw(self._at(slot) + L.S_ATTEMPT_US, 0)
            self._synced(self.files.sync_kernel)
        if self.trusted:
            self._write_published(words)
            self._synced(self.files.sync_kernel)
        write_back(words, self.image, 0, IDENTITY.start)
        write_back(words, self.image, IDENTITY.stop, L.H_REPAIRING)
        self._write_rest(words, L.H_REPAIRING + 1)
        if self._unsure:
            words.touch()
        self._synced(self.files.sync_kernel)
        for word, value in zip(IDENTITY, self.files.identity(), strict=True):
            words.raw(word, value)
        words.raw(L.H_REPAIRING, 0)
        self._synced(self.files.sync_kernel)

    def _write_published(self, words: Words) -> None:
        """Slots that wait say so before anything else is written: the word of another member of a batch may be all that
        says that it was published."""
        slots_at, slots = self.image[L.H_SLOTS_AT], self.image[L.H_SLOTS]

        def write_some(first: int) -> int:
            return write_published(words, self.image, slots_at, first, min(first + PIECE_SLOTS, slots))

        self._write_pieces(write_some, range(0, slots, PIECE_SLOTS))

    def _write_rest(self, words: Words, first: int) -> None:
        """Their order is of no importance."""
        end = len(self.image)

        def write_some(piece: int) -> int:
            return write_back(words, self.image, piece, min(piece + PIECE_WORDS, end))

        self._write_pieces(write_some, range(first, end, PIECE_WORDS))

    def _write_pieces(self, write_some: Callable[[int], int], pieces: range) -> None:
        """Where compiled code lets several threads run, two write, and what they have written goes to the disk
        meanwhile: a large kernel would otherwise wait for it with everything at the end."""
        if not compiled or len(pieces) == 1:
            for piece in pieces:
                write_some(piece)
            return
        with ThreadPoolExecutor(THREADS) as threads, ThreadPoolExecutor(1) as disk:
            syncing: Future[None] | None = None
            for changed in threads.map(write_some, pieces):
                if changed and (syncing is None or syncing.done()):
                    if syncing:
                        syncing.result()
                    syncing = disk.submit(self._synced, self.files.sync_kernel)
            if syncing:
                syncing.result()
