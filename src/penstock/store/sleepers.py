"""Owns the words by which those who sleep are counted and woken: receivers for messages, senders for room.

Those that wait for several queues at once watch their notification files instead: a flag says that some do, and the
next news makes a change of the file owed and clears it. Nobody counts them: a flag that a dead one left costs one
change of the file.

Called by the holder of the queue's lock. Whom to wake is the kernel's to decide; here it becomes owed, as part of the
caller's transaction. Never sleeps and never rings: that is ``waking.py``'s.
"""

from penstock.store import layout as L
from penstock.store.words import Words

OWED_ROOM = 1 << 32
OWED_FILE = 1 << 33


class Sleepers:
    """The sleepers of one kernel."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def arm(self, word: int) -> int:
        """Count one more sleeper on a futex word (its count is the next word) and return the word's value."""
        self.words.raw(word + 1, self.words.load(word + 1) + 1)
        return self.words.load(word)

    def arm_choosing(self) -> int:
        """The same on the bell of receivers, for one that does not take just any message."""
        self.words.raw(L.H_CHOOSERS, self.words.load(L.H_CHOOSERS) + 1)
        return self.arm(L.H_WAKE)

    def disarm_choosing(self, seen: int) -> None:
        if self.words.load(L.H_WAKE) == seen and self.words.load(L.H_CHOOSERS) > 0:
            self.words.raw(L.H_CHOOSERS, self.words.load(L.H_CHOOSERS) - 1)
        self.disarm(L.H_WAKE, seen)

    def disarm(self, word: int, seen: int) -> None:
        """A sleeper that timed out. If nobody has notified since it armed, its count is still in; else it was taken."""
        if self.words.load(word) == seen and self.words.load(word + 1) > 0:
            self.words.raw(word + 1, self.words.load(word + 1) - 1)

    def watch(self, chooses: bool) -> None:
        """From now on until the next news, changes of the notification file are waited for."""
        flag = L.WATCHED_CHOOSING if chooses else L.WATCHED_ANY
        self.words.raw(L.H_WATCHED, self.words.load(L.H_WATCHED) | flag)

    def watch_room(self) -> None:
        self.words.raw(L.H_ROOM_WATCHED, 1)

    def anybody(self) -> bool:
        """Whether anybody waits for messages, in either way."""
        return self.words.load(L.H_SLEEPERS) != 0 or self.words.load(L.H_WATCHED) != 0

    def somebody_chooses(self) -> bool:
        return self.words.load(L.H_CHOOSERS) != 0 or self.words.load(L.H_WATCHED) & L.WATCHED_CHOOSING != 0

    def anybody_for_room(self) -> bool:
        return self.words.load(L.H_ROOM_SLEEPERS) != 0 or self.words.load(L.H_ROOM_WATCHED) != 0

    def paid(self) -> None:
        """The owed notifications have been sent."""
        self.words.raw(L.H_OWED, 0)

    def wake(self, count: int) -> None:
        """So many receivers, or all that sleep. Where some of them choose, all: it may be for one that is not told."""
        sleepers = self.words.load(L.H_SLEEPERS)
        if sleepers != 0:
            woken = count if count < sleepers else sleepers
            if self.words.load(L.H_CHOOSERS) != 0:
                woken = sleepers
                self.words.put(L.H_CHOOSERS, 0)
            self.words.put(L.H_WAKE, (self.words.load(L.H_WAKE) + 1) & L.MASK32)
            self.words.put(L.H_SLEEPERS, sleepers - woken)
            self.words.add(L.H_OWED, woken)
        if self.words.load(L.H_WATCHED) != 0:
            self.words.put(L.H_WATCHED, 0)
            self.words.put(L.H_OWED, self.words.load(L.H_OWED) | OWED_FILE)

    def wake_for_room(self) -> None:
        """Every sender: what became free may be enough for any of them."""
        self.words.put(L.H_ROOM, (self.words.load(L.H_ROOM) + 1) & L.MASK32)
        self.words.put(L.H_ROOM_SLEEPERS, 0)
        self.words.put(L.H_OWED, self.words.load(L.H_OWED) | OWED_ROOM)
        if self.words.load(L.H_ROOM_WATCHED) != 0:
            self.words.put(L.H_ROOM_WATCHED, 0)
            self.words.put(L.H_OWED, self.words.load(L.H_OWED) | OWED_FILE)
