"""An application of scripts, for tests: the same functions are run by workers and on Spark, and must end the same."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock
from penstock.scripts import App, Context, ScriptMessage

REMIND_S = 0.4
CUSTOMERS = [f"customer {n}" for n in range(7)]


@dataclass
class Customer:
    orders: list[str] = field(default_factory=list)
    paid: int = 0
    counted: int = 0
    reminded: int = 0
    tries: int = 0


app = App("shop", input="orders", context=Customer)


@app.script("order")
def order(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.orders.append(message.body["item"])
    context.put({"to": context.key, **message.body}, to="shipping", type="ship", headers=message.headers)
    context.put(None, type="count")
    context.after(REMIND_S, "remind", message.body["item"])


@app.script("count")
def count(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.counted += 1


@app.script("pay")
def pay(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.paid += message.body
    context.cancel("remind")


@app.script("remind")
def remind(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.reminded += 1
    context.put(f"{context.key}: pay for {message.body}", to="mail", key=None)


@app.script("ask")
def ask(context: Context[Customer], message: ScriptMessage) -> None:
    message.reply({"orders": len(context.state.orders)})


@app.script("flaky")
def flaky(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.tries += message.attempts
    if message.attempts == 1:
        raise ConnectionError("try again")


@app.script("poison")
def poison(context: Context[Customer], message: ScriptMessage) -> None:
    context.state.paid = -1
    context.put("never", to="mail")
    raise ValueError("never")


@app.script("leave")
def leave(context: Context[Customer], message: ScriptMessage) -> None:
    context.put(f"{context.key} has left", to="mail")
    context.end()


class Shop:
    """The queues, filled; and what they must be like when all is done."""

    def __init__(self, root: Path, *, exclusive_keys: bool = True, orders: int = 2, **options: Any) -> None:
        self.root = root
        self.orders = orders
        self.manager = penstock.QueueManager(root)
        given = {"depth": 2000, "data_bytes": 1 << 20, "durability": "relaxed", **options}
        backoff = penstock.Backoff.exponential(0.05, factor=1, most=0.05, jitter=0)
        self.manager.create("orders", exclusive_keys=exclusive_keys, max_attempts=3, backoff=backoff, **given)
        for name in ("shipping", "mail"):
            self.manager.create(name, **given)
        self.answers: list[Any] = []

    def fill(self) -> None:
        with self.manager.open("orders") as queue:
            for n in range(self.orders):
                for customer in CUSTOMERS:
                    queue.put({"item": f"lamp {n}"}, type="order", key=customer, headers={"n": str(n)})
            for customer in CUSTOMERS[:3]:
                queue.put(10, type="pay", key=customer)
            queue.put("?", type="flaky", key=CUSTOMERS[4])
            queue.put("?", type="poison", key=CUSTOMERS[5])
            queue.put("?", type="no such script", key=CUSTOMERS[5])
            queue.put("bye", type="leave", key=CUSTOMERS[6])

    def ask(self) -> None:
        """Two who wait for an answer."""
        self._asking = self.manager.open("orders")
        for customer in CUSTOMERS[:2]:
            handle = self._asking.put("how many?", type="ask", key=customer, model="two-way", wait=False)
            while handle.id is None:
                time.sleep(0.001)
            self.answers.append(handle)

    def run(self, once: Callable[[], object], most_s: float = 120.0) -> None:
        """Until there is nothing left, now or later."""
        deadline = time.monotonic() + most_s
        with self.manager.open("orders") as queue:
            while queue.qsize() or queue.stats().claimed:  # a driver that was killed has claimed some
                assert time.monotonic() < deadline, f"{queue.qsize()} messages are left"
                once()
                time.sleep(0.05)

    def expected(self) -> dict[str, Customer]:
        n = self.orders
        names = [f"lamp {i}" for i in range(n)]
        found = {name: Customer(names, counted=n, reminded=1) for name in CUSTOMERS}
        for name in CUSTOMERS[:3]:
            found[name] = Customer(names, counted=n, paid=10)
        found[CUSTOMERS[4]] = Customer(names, counted=n, reminded=1, tries=2)
        found[CUSTOMERS[6]] = Customer(counted=n)  # the count of the orders came when it had left
        return found

    def bodies(self, name: str) -> Counter[str]:
        with self.manager.open(name) as queue:
            return Counter(str(message.body) for message in queue.browse())

    def judge(self, contexts: dict[str, Customer] | None = None) -> None:
        """All is there once, and as it should be."""
        assert (dict(app.contexts(self.root)) if contexts is None else contexts) == self.expected()
        ship = [{"to": name, "item": f"lamp {i}"} for i in range(self.orders) for name in CUSTOMERS]
        assert self.bodies("shipping") == Counter(map(str, ship))
        late = [f"{name}: pay for lamp {self.orders - 1}" for name in CUSTOMERS[3:6]]
        assert self.bodies("mail") == Counter([*late, f"{CUSTOMERS[6]} has left"])
        with penstock.open(self.root / "orders.dead") as letters:
            found = sorted((letter.type or "", str(letter.error).split(":")[0]) for letter in letters.browse())
        assert found == [("no such script", "NoScript"), ("poison", "ValueError")]
        for handle in self.answers:
            assert handle.result(timeout=20) == {"orders": self.orders}
        self.manager.close()
