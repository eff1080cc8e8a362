"""Owns the batch that a publisher is just putting: its number stands in the publisher's entry before the batch becomes
visible, and counts from the moment in which it did. Never looks for an entry: names are ``publishing.py``'s.
"""

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.words import Words


class Announcing:
    """The one announced batch of a kernel."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def announce(self, publisher: int, batch: int) -> None:
        """``publisher`` is the first word of its entry. As part of the transaction that publishes the batch."""
        self.words.put(publisher + L.P_NEXT, batch)
        self.words.put(L.H_PUBLISHER, publisher)

    def settle(self) -> None:
        """It is published: the last one of its publisher. A transaction of its own."""
        publisher = self.words.load(L.H_PUBLISHER)
        self._check(publisher)
        self.words.put(publisher + L.P_LAST, self.words.load(publisher + L.P_NEXT))
        self.words.put(L.H_PUBLISHER, 0)
        self.words.commit()

    def _check(self, publisher: int) -> None:
        """A word that is not the start of an entry must not be written to."""
        first = self.words.load(L.H_NAMES_AT) + L.PUBLISHERS_OFFSET
        last = first + (L.PUBLISHERS - 1) * L.PUBLISHER_WORDS
        if (
            publisher < first
            or publisher > last
            or (publisher - first) % L.PUBLISHER_WORDS != 0
            or self.words.load(publisher + L.P_LENGTH) == 0
        ):
            raise Corrupt(
                self.words.path,
                offset=L.H_PUBLISHER * L.WORD_BYTES,
                expected="a publisher's entry",
                found=f"word {publisher}",
            )
