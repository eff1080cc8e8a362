"""Owns what goes where: the queues, the types of messages, and the folder that all of it is in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LANES = {"express": 3, "normal": 2, "bulk": 1}  # the queues that shops put into; the priority of each in:
ORDERS = "orders"  # the macro queue that collects them, for the scripts

ORDER, PAYMENT = "order", "payment"  # the types of what shops put
SHIPPING = "shipping"  # for each order: to the warehouse
INVOICES = "invoices"  # for each payment: to the accountants
MAIL = "mail"  # for each reminder whose time came
SALES = "sales"  # for each order: to be summed up
TOTALS = "totals"  # the sums, whenever they change
DEAD = "dead"  # what failed too often, of all lanes

CONSUMED = (SHIPPING, INVOICES, MAIL, TOTALS)  # each has a back office that takes from it
QUEUES = (*LANES, *CONSUMED, SALES, DEAD)

ATTEMPTS_MAX = 4
BACKOFF_S = (0.3, 2.0)  # after the first failure, and at most
REMIND_S = 4.0  # after an order, unless all is paid by then
WINDOW_S = 5

SLOTS_LEAST = 4096
MESSAGE_BYTES = 512  # room for each: more than any of ours needs
HISTORY_BYTES = 32 << 20  # far more than a run needs


@dataclass(frozen=True)
class Folder:
    """Where a run keeps everything."""

    root: Path

    @property
    def queues(self) -> Path:
        """The root of the queue manager; scripts keep their contexts and their checkpoint there, too."""
        return self.root / "queues"

    def queue(self, name: str) -> Path:
        return self.queues / name

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
    def figures(self) -> Path:
        """What Spark has found in the history of the queues."""
        return self.root / "history.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    def make(self) -> None:
        for name in ("queues", "journals", "checkpoints", "logs"):
            (self.root / name).mkdir(parents=True)
