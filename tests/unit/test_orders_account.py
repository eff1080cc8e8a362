"""The account of the orders example finds what went wrong."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import penstock
from examples.orders.account import Account, Found, Held, Letter
from examples.orders.director import letter_of
from examples.orders.journal import Follower, Journal
from examples.orders.plan import ATTEMPTS_MAX, CONSUMED, DEAD, LANES, ORDER, ORDERS, PAYMENT, SALES, SHIPPING
from examples.orders.producers import Event, batches
from examples.orders.shop import REMINDER, Customer, Tally, Timers, app, charge, failures

EVENTS = [
    Event(1, ORDER, "ann", "express", 500, 100_000),
    Event(9, PAYMENT, "ann", "express", 500, 100_000, 1.5),
    Event(2, ORDER, "bob", "bulk", 300, 104_999),
    Event(3, ORDER, "bob", "bulk", 200, 105_000),
    Event(97, ORDER, "bob", "normal", 0, 105_000),
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("producer-0", {"at_s": 105.0, "again": 0, "events": [asdict(event) for event in EVENTS]}),
    ("consumer-shipping", {"at_s": 106.0, "messages": [{"id": "s1", "n": 1, "customer": "ann", "cents": 500}]}),
    (
        "consumer-shipping",
        {
            "at_s": 107.0,
            "messages": [
                {"id": "s2", "n": 2, "customer": "bob", "cents": 300},
                {"id": "s3", "n": 3, "customer": "bob", "cents": 200},
            ],
        },
    ),
    ("consumer-invoices", {"at_s": 107.0, "messages": [{"id": "i1", "n": 9, "customer": "ann", "cents": 500}]}),
    ("consumer-mail", {"at_s": 111.0, "messages": [{"id": "m1", "customer": "bob", "nth": 1, "owes_cents": 500}]}),
    (
        "consumer-totals",
        {
            "at_s": 108.0,
            "messages": [
                {"id": "t1", "start_s": 100, "lane": "express", "count": 1, "cents": 500, "check": 1},
                {"id": "t2", "start_s": 100, "lane": "bulk", "count": 1, "cents": 300, "check": 2},
            ],
        },
    ),
    (
        "consumer-totals",
        {
            "at_s": 109.0,
            "messages": [{"id": "t3", "start_s": 105, "lane": "bulk", "count": 1, "cents": 200, "check": 3}],
        },
    ),
]


def found() -> Found:
    return Found(
        contexts={
            "ann": Customer(Tally(1, 500, 1), Tally(1, 500, 9), Timers(set=1, cancelled=1), retries=1),
            "bob": Customer(Tally(2, 500, 5), Tally(), Timers(set=2, replaced=1, fired=1)),
        },
        timers={},
        letters=[Letter(97, "max_attempts", "ValueError: an order for nothing", 4)],
        held={
            **dict.fromkeys(LANES, Held(0, 0)),
            "bulk": Held(8, 0),
            "shipping": Held(3, 0),
            "invoices": Held(1, 0),
            "mail": Held(1, 0),
            "totals": Held(3, 0),
            "sales": Held(3, 0),
            "dead": Held(0, 1),
        },
    )


def account(lines: Any = RIGHT, at_the_end: Found | None = None, messages: int = 5) -> dict[str, Any]:
    made = Account()
    for journal, line in lines:
        made.add(journal, line)
    return made.as_json(messages, at_the_end or found())


def test_what_is_right_is_found_right() -> None:
    right = account()
    assert right["ok"] and right["faults"] == []
    assert [right[name] for name in ("put", "applied", "out", "duplicates", "lost")] == [5, 4, 5, 0, 0]
    assert (right["customers"], right["retries"], right["windows"], right["updates"]) == (2, 1, 3, 3)
    assert right["reminders"] == {"set": 3, "replaced": 1, "cancelled": 1, "fired": 1}
    assert right["latency_ms"]["bulk"]["most"] == 2001


@pytest.mark.parametrize("line", range(len(RIGHT)))
def test_a_line_that_is_missing_or_there_twice_is_found(line: int) -> None:
    assert not account(RIGHT[:line] + RIGHT[line + 1 :])["ok"]
    assert not account([*RIGHT, RIGHT[line]])["ok"]


@pytest.mark.parametrize(
    "line, field, value",
    [(1, "n", 7), (1, "cents", 501), (1, "customer", "bob"), (1, "id", "s2"), (3, "n", 1), (4, "customer", "ann"),
     (4, "nth", 2), (5, "count", 2), (5, "cents", 501), (5, "check", 6), (6, "start_s", 110), (6, "lane", "normal")],
)  # fmt: skip
def test_a_message_that_was_changed_is_found(line: int, field: str, value: Any) -> None:
    lines = copy.deepcopy(RIGHT)
    lines[line][1]["messages"][0][field] = value
    assert not account(lines)["ok"]


def test_lost_and_doubled_messages_are_counted() -> None:
    lost = account([line for line in RIGHT if line[0] != "consumer-invoices"])
    assert (lost["lost"], lost["duplicates"]) == (1, 0)
    doubled = account([*RIGHT, RIGHT[2]])
    assert (doubled["lost"], doubled["duplicates"]) == (0, 2)
    in_another_queue = account([*RIGHT[:3], ("consumer-shipping", RIGHT[3][1]), *RIGHT[4:]])
    assert in_another_queue["lost"] == 1 and not in_another_queue["ok"]


@pytest.mark.parametrize("times", [0, 2])
def test_what_a_context_has_not_or_twice_is_found(times: int) -> None:
    end = found()
    ann = end.contexts["ann"]
    ann.ordered, ann.reminders = Tally(times, 500 * times, times), Timers(set=times, cancelled=times)
    wrong = account(at_the_end=end)
    assert wrong["lost"] + wrong["duplicates"] == 1 and wrong["applied"] == 4 - 1 + times and not wrong["ok"]


def test_a_context_that_has_another_message_instead_is_found() -> None:
    end = found()
    end.contexts["ann"].paid.check = 11
    assert not account(at_the_end=end)["ok"]
    end = found()
    end.contexts["ann"], end.contexts["carl"] = Customer(), end.contexts["ann"]
    wrong = account(at_the_end=end)
    assert (wrong["lost"], wrong["duplicates"]) == (2, 2) and not wrong["ok"]  # an order and a payment


def test_a_failed_attempt_too_many_or_too_few_is_found() -> None:
    for retries in (0, 2):
        end = found()
        end.contexts["ann"].retries = retries
        assert not account(at_the_end=end)["ok"]


@pytest.mark.parametrize("change", [{"set": 3}, {"fired": 0}, {"fired": 2}, {"replaced": 0}, {"cancelled": 1}])
def test_a_reminder_that_does_not_add_up_is_found(change: dict[str, int]) -> None:
    end = found()
    for name, value in change.items():
        setattr(end.contexts["bob"].reminders, name, value)
    assert not account(at_the_end=end)["ok"]
    end = found()
    end.timers["bob"] = ["reminder"]
    assert not account(at_the_end=end)["ok"]


def test_dead_letters_are_those_that_must_be() -> None:
    letter = found().letters[0]
    others = [
        [],
        [letter, letter],
        [Letter(97, "max_attempts", "KeyError: 'n'", 4)],
        [Letter(97, "max_attempts", letter.error, 3)],
        [Letter(97, "no script", letter.error, 4)],
        [letter, Letter(3, "max_attempts", letter.error, 4)],
    ]
    for letters in others:
        end = found()
        end.letters = letters
        assert not account(at_the_end=end)["ok"], letters
    end.letters = [letter, letter]
    assert account(at_the_end=end)["duplicates"] == 1
    end.letters = []
    assert account(at_the_end=end)["lost"] == 1


def test_the_queues_are_asked_too() -> None:
    for name in ("shipping", "invoices", "mail", "totals", "bulk"):
        end = found()
        end.held[name] = Held(end.held[name].puts + 1, 0)
        assert not account(at_the_end=end)["ok"], name
    for name in found().held.keys() - {"dead"}:
        end = found()
        end.held[name] = Held(end.held[name].puts, 1)
        assert not account(at_the_end=end)["ok"], name
    assert not account(messages=6)["ok"]


def test_half_a_line_of_a_killed_process_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "producer-0.jsonl"
    path.write_text('{"batch": 0}\n{"bat')
    follower = Follower(tmp_path)
    assert list(follower.new_lines()) == [("producer-0", {"batch": 0})]
    journal = Journal(path)
    assert journal.lines == 1
    journal.write({"batch": 1})
    assert list(follower.new_lines()) == [("producer-0", {"batch": 1})]


def test_a_producer_makes_the_same_batches_again_and_no_number_twice() -> None:
    made = [list(batches(n, 3, 500, 1000.0, 10.0)) for n in range(3)]
    assert made[1] == list(batches(1, 3, 500, 1000.0, 10.0))
    events = [event for producer in made for batch in producer for event in batch]
    assert len({event.n for event in events}) == len(events) == 1500
    assert {event.type for event in events} == {ORDER, PAYMENT} and {event.lane for event in events} == set(LANES)
    assert any(event.is_poison for event in events) and all(event.n % 97 == 0 for event in events if event.is_poison)
    assert any(failures(event.n) == 2 for event in events if event.type == PAYMENT)


def test_the_bank_fails_as_often_as_it_says() -> None:
    assert [failures(n) for n in (1, 9, 45)] == [0, 1, 2]
    for n in (1, 9, 45):
        for attempt in range(1, failures(n) + 1):
            with pytest.raises(ConnectionError):
                charge(n, attempt)
        charge(n, failures(n) + 1)


def test_the_account_knows_what_the_scripts_do(tmp_path: Path) -> None:
    """The same scripts, run by a worker until only reminders are left."""
    with penstock.QueueManager(tmp_path) as manager:
        for name in LANES:
            manager.create(name, exclusive_keys=True, max_attempts=ATTEMPTS_MAX, backoff=0.01, dead_letter=DEAD)
        for name in (*CONSUMED, SALES, DEAD):
            manager.create(name)
        manager.create_macro(ORDERS, list(LANES.items()))
        for event in EVENTS:
            with manager.open(event.lane) as lane:
                lane.put(event.draft().body, type=event.type, key=event.customer)
        deadline = time.monotonic() + 60
        with manager.open(ORDERS) as orders:
            while any(message.type != REMINDER for message in orders.browse()):
                assert time.monotonic() < deadline
                app.run(tmp_path, until_empty=True)
        with manager.open(SHIPPING) as shipping, manager.open(DEAD) as dead:
            assert sorted(message.body["n"] for message in shipping.browse()) == [1, 2, 3]
            assert [letter_of(each) for each in dead.browse()] == found().letters
    contexts = app.contexts(tmp_path)
    for name, expected in found().contexts.items():
        is_one = contexts[name]
        assert (is_one.ordered, is_one.paid, is_one.retries) == (expected.ordered, expected.paid, expected.retries)
        assert is_one.reminders.fired + ("reminder" in contexts.timers(name)) == expected.reminders.fired
