"""The shop, as scripts: what an order, a payment and a reminder do to their customer. Knows nothing of Spark, of other
processes and of kills: what a script has done counts once, whatever happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.scripts import App, Context, ScriptMessage

from .plan import INVOICES, MAIL, ORDER, ORDERS, PAYMENT, REMIND_S, SALES, SHIPPING

REMINDER = "reminder"
FAILS_EVERY = 9  # of so many payments the bank does not answer one at once, and
FAILS_AGAIN_EVERY = 45  # of so many one not at the second attempt either


@dataclass
class Tally:
    """Of some messages: how many they are, what they come to, and who they were, as the sum of their numbers."""

    count: int = 0
    cents: int = 0
    check: int = 0

    def add(self, n: int, cents: int) -> None:
        self.count += 1
        self.cents += cents
        self.check += n


@dataclass
class Timers:
    """What became of the reminders. All that were set are one of the others in the end."""

    set: int = 0
    replaced: int = 0  # by that of a later order
    cancelled: int = 0
    fired: int = 0


@dataclass
class Customer:
    """The context: what is known of a customer."""

    ordered: Tally = field(default_factory=Tally)
    paid: Tally = field(default_factory=Tally)
    reminders: Timers = field(default_factory=Timers)
    retries: int = 0  # attempts that failed, of payments that went through in the end

    @property
    def owes_cents(self) -> int:
        return self.ordered.cents - self.paid.cents


app = App("shop", input=ORDERS, context=Customer)


@app.script(ORDER)
def order(context: Context[Customer], message: ScriptMessage) -> None:
    customer, n, cents = context.state, message.body["n"], message.body["cents"]
    customer.ordered.add(n, cents)
    context.put({"n": n, "customer": context.key, "cents": cents}, to=SHIPPING, priority=message.priority)
    context.put({"n": n, "cents": cents, "at_ms": message.body["at_ms"]}, to=SALES, key=message.body["lane"])
    if cents <= 0:  # late enough: what was done above has not happened then
        raise ValueError("an order for nothing")
    customer.reminders.set += 1
    customer.reminders.replaced += REMINDER in context.timers
    context.after(REMIND_S, REMINDER)


@app.script(PAYMENT)
def payment(context: Context[Customer], message: ScriptMessage) -> None:
    customer, n, cents = context.state, message.body["n"], message.body["cents"]
    charge(n, message.attempts)
    customer.paid.add(n, cents)
    customer.retries += message.attempts - 1
    context.put({"n": n, "customer": context.key, "cents": cents}, to=INVOICES)
    if customer.owes_cents <= 0:
        customer.reminders.cancelled += context.cancel(REMINDER)


@app.script(REMINDER)
def reminder(context: Context[Customer], message: ScriptMessage) -> None:
    customer = context.state
    customer.reminders.fired += 1
    mail = {"customer": context.key, "nth": customer.reminders.fired, "owes_cents": customer.owes_cents}
    context.put(mail, to=MAIL)


def failures(n: int) -> int:
    """How often the bank does not answer before it takes this payment."""
    return (n % FAILS_EVERY == 0) + (n % FAILS_AGAIN_EVERY == 0)


def charge(n: int, attempt: int) -> None:
    """The bank, which is not always there. That it fails by the number lets the account know how often it must have."""
    if attempt <= failures(n):
        raise ConnectionError("the bank does not answer")
