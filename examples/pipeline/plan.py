"""Owns what goes where: the types of messages, their destinations, the shops, and the folder that all of it is in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

INBOUND = "inbound"  # the queue that all shops put into
ROUTES = {"order": "warehouse", "payment": "bank"}  # each type has a queue of its own
COUNTED = "sale"  # not passed on one by one: summed up by shop and window
TOTALS = "totals"  # the queue that the sums go to
DESTINATIONS = (*ROUTES.values(), TOTALS)
TYPES = (*ROUTES, COUNTED)

SHARES = {"order": 35, "payment": 25, "sale": 40}  # of a hundred messages
EXPRESS_SHARE = 0.1  # of each type, with the priority of the second column
PRIORITIES = {"order": (0, 9), "payment": (3, 12), "sale": (0, 1)}
SHOPS = ("Bergen", "Graz", "Lyon", "Porto", "Riga", "Turku")
WINDOW_S = 5

SLOTS_LEAST = 4096
MESSAGE_BYTES = 512  # room for each: more than any of ours needs


@dataclass(frozen=True)
class Folder:
    """Where a run keeps everything."""

    root: Path

    def queue(self, name: str) -> Path:
        return self.root / "queues" / name

    def journal(self, name: str) -> Path:
        return self.root / "journals" / f"{name}.jsonl"

    def checkpoint(self, query: str) -> Path:
        return self.root / "checkpoints" / query

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    @property
    def account(self) -> Path:
        return self.root / "account.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    def make(self) -> None:
        for name in ("queues", "journals", "checkpoints", "logs"):
            (self.root / name).mkdir(parents=True)
