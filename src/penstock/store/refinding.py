"""Owns what a restore finds of claims and publishers: read from their files, then made again in the new kernel.

Whatever cannot be believed is said, and the restore goes on without it. Never looks for records: that is ``scan.py``'s.
"""

from __future__ import annotations

import contextlib
from array import array

from penstock.errors import Corrupt
from penstock.store import claimfiles, publishfiles
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.claiming import NO_ENTRY, Claiming
from penstock.store.files import LocalFiles
from penstock.store.findings import Findings
from penstock.store.gather import F_INFO, F_NUMBER, REFERENCE_WORDS
from penstock.store.kernel import Kernel
from penstock.store.options import Options
from penstock.store.publishfiles import PublishFiles, State
from penstock.store.publishing import NO_ENTRY as NO_PUBLISHER
from penstock.store.publishing import Publishing
from penstock.store.scan import Scan
from penstock.store.words import Words

PUBLISHED_STATES = (L.STATE_VACANT, L.STATE_PENDING, L.STATE_CLAIMED)


class FoundClaims:
    """Receivers and their claims that have files."""

    def __init__(self, files: LocalFiles, options: Options, findings: Findings) -> None:
        self._files = files
        self._options = options
        self._findings = findings
        self._claims: dict[str, list[tuple[int, array[int]]]] = {}  # by name, with their numbers
        # Of messages that there were verdicts on, by slot and number, which may be in several claims: the most.
        self._attempts: dict[tuple[int, int], int] = {}

    def read(self, scan: Scan) -> None:
        """Those that have a file, by name and number."""
        for name in claimfiles.receivers(self._files.path):
            files = self._files_of(name)
            committed = self._committed(files)
            for number in files.numbers():
                try:
                    rows = files.read(number)
                    if number <= committed:  # without verdicts nobody would know which of these are acknowledged
                        self._attempts.update(((one.slot, one.number), 0) for one in files.verdicts(number))
                except Corrupt as error:
                    self._findings.say(
                        error.path, error.offset, f"{error.found}; the messages of this claim wait again"
                    )
                    continue
                if rows:
                    scan.believe_claim(rows)
                    self._claims.setdefault(name, []).append((number, rows))

    @staticmethod
    def _committed(files: ClaimFiles) -> int:
        try:
            return files.committed()
        except Corrupt:
            return 0  # whoever becomes this receiver is told

    def name(self, slot: int, number: int) -> bool:
        """Whether one of them has this message."""
        return any(
            rows[at] == slot and rows[at + F_NUMBER] == number
            for claims in self._claims.values()
            for _, rows in claims
            for at in range(0, len(rows), REFERENCE_WORDS)
        )

    def claim_again(self, kernel: Kernel) -> None:
        """Messages of claims that have a file are claimed; others wait. Also those of claims that were committed: if
        they are still there, the next receiver of that name acknowledges them, or does what the verdicts say. One that
        failed may be in a later claim as well: that has it."""
        claiming = Claiming(kernel)
        self._count_attempts()
        for name, claims in self._claims.items():
            entry = NO_ENTRY
            for number, rows in claims:
                for at in range(0, len(rows), REFERENCE_WORDS):
                    slot, of = rows[at], rows[at + F_NUMBER]
                    if rows[at + F_INFO] >> L.ATTEMPTS_SHIFT < self._attempts.get((slot, of), 0):
                        continue
                    if slot < kernel.slots and _waits(kernel, slot, of):
                        entry = claiming.make(name) if entry == NO_ENTRY else entry
                        if entry == NO_ENTRY:
                            where = str(self._files.path / claimfiles.CLAIMS / name)
                            self._findings.say(where, 0, "no room for another receiver: its messages wait again")
                            return
                        claiming.adopt(slot, entry, number, rows[at + F_INFO])
            if entry != NO_ENTRY:
                claiming.set_timeout(entry, self._timeout_us(name))

    def _count_attempts(self) -> None:
        """Each claim of a message has counted one more than the one before."""
        for rows in (rows for claims in self._claims.values() for _, rows in claims if self._attempts):
            for at in range(0, len(rows), REFERENCE_WORDS):
                place = rows[at], rows[at + F_NUMBER]
                if place in self._attempts:
                    self._attempts[place] = max(self._attempts[place], rows[at + F_INFO] >> L.ATTEMPTS_SHIFT)

    def _timeout_us(self, name: str) -> int:
        """When it was seen, nobody knows now: whoever looks next begins to count."""
        try:
            return self._files_of(name).timeout_us()
        except Corrupt as error:
            what = f"{error.found}; the claims of {name} stay until somebody releases them"
            self._findings.say(error.path, error.offset, what)
            return 0

    def _files_of(self, name: str) -> ClaimFiles:
        return ClaimFiles(self._files.path, name, self._options.signature)


def _waits(kernel: Kernel, slot: int, number: int) -> bool:
    return slot > kernel.get(L.H_FILES) and kernel.field(slot, L.S_WORD) == kernel.word_of(
        slot, number, L.STATE_WAITING
    )


class FoundPublishers:
    """Publishers and their last batches."""

    def __init__(self, files: LocalFiles, options: Options, findings: Findings) -> None:
        self._files = files
        self._options = options
        self._findings = findings
        self._last: dict[str, int] = {}

    def look(self, kernel: Kernel, believed: memoryview, *, names_at: int, lost: bool) -> None:
        """The last batch of each publisher: what its entry in the old kernel (``believed``) says, unless that is
        ``lost``, or more, if the first message of the batch that its file speaks of was published. As long as the entry
        on disk does not know of a batch, the room of its messages was not given away: see ``retained.py``."""
        with contextlib.closing(Words(believed, f"{self._files.kernel_path} (old)")) as words:
            old = Publishing(Kernel(words), names_at)
            for name in publishfiles.publishers(self._files.path):
                known = self._known(old, name) if not lost else -1
                self._last[name] = self._last_batch(kernel, believed, name, known)

    def _known(self, old: Publishing, name: str) -> int:
        """What a kernel says, of which nothing is certain."""
        try:
            entry = old.find(name)
            return old.last(entry) if entry != NO_PUBLISHER else -1
        except Corrupt as error:
            what = f"{error.found}; the entry of publisher {name} is damaged"
            self._findings.say(self._files.kernel_path, error.offset, what)
            return -1

    def _last_batch(self, kernel: Kernel, believed: memoryview, name: str, known: int) -> int:
        try:
            state = self._files_of(name).read()
        except Corrupt as error:
            what = f"{error.found}; the last batch that is known of {name} is {known}"
            self._findings.say(error.path, error.offset, what)
            return known
        if state is None:
            return known
        last = max(known, state.last)
        return state.batch if state.batch > last and _was_published(kernel, believed, state) else last

    def publish_again(self, kernel: Kernel) -> None:
        publishing = Publishing(kernel)
        for name, last in self._last.items():
            entry = publishing.make(name)
            if entry == NO_PUBLISHER:
                self._findings.say(str(self._files.path), 0, f"no room for another publisher: {name} is forgotten")
                continue
            publishing.settle(entry, last)

    def settle(self) -> None:
        """Their files do not ask again: what a restore writes into a slot says nothing about what was published."""
        for name, last in self._last.items():
            files = self._files_of(name)
            with contextlib.suppress(Corrupt):  # else it is written anew
                if files.read() == State(last):
                    continue  # a disk that is full must not keep the queue closed
            files.write(State(last))

    def _files_of(self, name: str) -> PublishFiles:
        return PublishFiles(self._files.path, name, self._options.signature)


def _was_published(kernel: Kernel, believed: memoryview, state: State) -> bool:
    """Whether the first message of a batch lives or was acknowledged. One that is given up gets another number."""
    if not kernel.get(L.H_FILES) < state.slot < kernel.slots:
        return False
    words = [kernel.word_of(state.slot, state.number, as_) for as_ in (L.STATE_WAITING, *PUBLISHED_STATES)]
    at = kernel.slots_at + state.slot * L.SLOT_WORDS
    return kernel.get(at) == words[0] or believed[at] in words
