"""What a scenario may ask of a system. Knows no system.

A ``System`` says where its data lives and travels to other processes; a ``Client`` is one process's open end of it.
They work with relaxed durability: what is confirmed survives the process, not a power failure. In the scenarios of
durable puts a variant takes their place that confirms what is on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

POLL_S = 0.001  # how long a system that cannot block sleeps when it found nothing

Token = Any  # whatever the system needs to acknowledge a delivery


class Client:
    """One process's open end. Subclasses set or define what they support.

    ``get`` and ``get_many`` wait until there is something. They return tokens and bodies apart, so that no system
    pays for a message object that another does not make.
    """

    def put(self, body: bytes) -> object:
        raise NotImplementedError

    def put_many(self, bodies: Sequence[bytes]) -> object:
        raise NotImplementedError

    def packed(self, bodies: Sequence[bytes]) -> Any:
        """A batch in the form in which ``put_many`` takes it soonest, made before the clock runs."""
        return bodies

    def put_at(self, body: bytes, deliver_us: int) -> object:
        raise NotImplementedError

    def put_many_at(self, bodies: Sequence[bytes], delivers_us: Sequence[int]) -> object:
        raise NotImplementedError

    def get(self) -> tuple[Token, bytes]:
        raise NotImplementedError

    def get_many(self, most: int) -> tuple[list[Token], list[bytes]]:
        raise NotImplementedError

    def ack(self, token: Token) -> object:
        raise NotImplementedError

    def ack_many(self, tokens: list[Token]) -> object:
        raise NotImplementedError

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        """Delivery time (microseconds) and body of all that wait, in the order of delivery."""
        raise NotImplementedError

    def left(self) -> int:
        """How many messages it still holds, delivered or not: 0 after everything was acknowledged."""
        raise NotImplementedError

    def puts_a_sync(self) -> float | None:
        """How many durable puts shared one sync so far, where the system tells."""
        return None

    def close(self) -> None:
        pass


class System:
    """Makes the data of one measurement; ``open`` may be called in another process."""

    name = ""
    durable = True
    scenarios = ""  # letters of the scenarios it takes part in

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        """Make room for so many messages, in the directory ``where``, which exists and is ours.

        ``consumers`` is how many will open it to receive, for a system that must know.
        """
        raise NotImplementedError

    def open(self, *, role: str = "both", index: int = 0) -> Client:
        """``role`` is "producer", "consumer" or "both"; ``index`` counts the clients of one role."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what ``create`` took outside the directory."""
