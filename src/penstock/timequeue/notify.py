"""Owns sleeping and waking: how long a receiver may sleep, and the bell that ends its sleep early.

Every wake-up is a hint. A sleeper arms (is counted, and notes the bell's value) under the queue's lock in the same turn
in which it found nothing to do; whoever changes something to do counts the bell up under the lock. So the sleep either
sees the changed value at once or is ended by the ring. Behind it all stands a look at the clock once a second.
"""

from __future__ import annotations

from penstock.store.files import LocalFiles
from penstock.store.waking import Futex, Notice, futex_available

SLEEP_MAX_S = 1.0  # clocks are set and owners die without a word


def sleep_s(*, now_us: int, boot_us: int, next_due_us: int, next_lease_us: int, left_s: float | None) -> float:
    """Until the next delivery time, the next lease end or the caller's deadline; a second at most.

    >>> sleep_s(now_us=0, boot_us=0, next_due_us=250_000, next_lease_us=0, left_s=None)
    0.25
    """
    longest = SLEEP_MAX_S
    if next_due_us:
        longest = min(longest, (next_due_us - now_us) / 1e6)
    if next_lease_us:
        longest = min(longest, (next_lease_us - boot_us) / 1e6)
    if left_s is not None:
        longest = min(longest, left_s)
    return max(longest, 0.0)


class Bell:
    """A word of the kernel that sleepers watch: as a futex, or by the queue's notification file."""

    def __init__(self, files: LocalFiles, word: int, *, way: str) -> None:
        self.word = word
        self._way: Futex | Notice
        if way == "futex" and futex_available():
            self._way = Futex(files.kernel, word)
        else:
            self._way = Notice(files.kernel, word, files.wakeup_path)

    def sleep(self, seen: int, seconds: float) -> bool:
        """False when the time ran out."""
        return self._way.wait(seen, seconds)

    def ring(self, count: int) -> None:
        self._way.wake(count)

    def close(self) -> None:
        self._way.close()
