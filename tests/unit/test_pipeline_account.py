"""The account of the pipeline example finds what went wrong."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

import pytest

from examples.pipeline.account import Account, Held
from examples.pipeline.journal import Follower, Journal
from examples.pipeline.producers import Event, batches

EVENTS = [
    Event(0, "order", "Riga", 500, 100_000),
    Event(1, "payment", "Lyon", 700, 101_000, 1.5),
    Event(2, "sale", "Riga", 100, 102_000),
    Event(3, "sale", "Riga", 200, 104_999),
    Event(4, "sale", "Riga", 400, 105_000),
]
RIGHT = [
    ("producer-0", {"at_s": 1.0, "again": False, "events": [asdict(event) for event in EVENTS]}),
    ("consumer-warehouse", {"at_s": 2.0, "messages": [{"id": "w1", "due_us": 1_500_000, **asdict(EVENTS[0])}]}),
    ("consumer-bank", {"at_s": 2.0, "messages": [{"id": "b1", "due_us": 1_500_000, **asdict(EVENTS[1])}]}),
    (
        "consumer-totals",
        {"at_s": 2.0, "messages": [{"start_s": 100, "shop": "Riga", "sales": 1, "cents": 100, "check": 2}]},
    ),
    (
        "consumer-totals",
        {
            "at_s": 3.0,
            "messages": [
                {"start_s": 100, "shop": "Riga", "sales": 2, "cents": 300, "check": 5},
                {"start_s": 105, "shop": "Riga", "sales": 1, "cents": 400, "check": 4},
            ],
        },
    ),
]
HELD = {"inbound": Held(5, 0), "warehouse": Held(1, 0), "bank": Held(1, 0), "totals": Held(3, 0)}


def account(lines: Any = RIGHT, held: Any = HELD, messages: int = 5) -> dict[str, Any]:
    made = Account()
    for journal, line in lines:
        made.add(journal, line)
    return made.as_json(messages, held)


def test_what_is_right_is_found_right() -> None:
    found = account()
    assert found["ok"] and found["faults"] == []
    assert [found[name] for name in ("put", "routed", "delivered", "duplicates", "lost")] == [5, 5, 5, 0, 0]
    assert (found["windows"], found["updates"], found["latency_ms"]["median"]) == (2, 3, 500)


@pytest.mark.parametrize("line", range(len(RIGHT)))
def test_a_line_that_is_missing_or_there_twice_is_found(line: int) -> None:
    assert not account(RIGHT[:line] + RIGHT[line + 1 :])["ok"]
    assert not account([*RIGHT, RIGHT[line]])["ok"]


def test_lost_and_doubled_messages_are_counted() -> None:
    lost = account([line for line in RIGHT if line[0] != "consumer-bank"])
    assert (lost["lost"], lost["duplicates"]) == (1, 0)
    doubled = account([*RIGHT, RIGHT[1]], {**HELD, "warehouse": Held(2, 0)})
    assert (doubled["lost"], doubled["duplicates"]) == (0, 1) and not doubled["ok"]
    uncounted = account(RIGHT[:-1])
    assert uncounted["lost"] == 2
    published_twice = account([*RIGHT, RIGHT[3]], {**HELD, "totals": Held(4, 0)})
    assert published_twice["duplicates"] == 1 and not published_twice["ok"]


@pytest.mark.parametrize(
    "line, field, value",
    [(1, "n", 7), (1, "cents", 501), (1, "shop", "Graz"), (1, "type", "payment"), (3, "sales", 2), (4, "cents", 301),
     (4, "check", 6), (4, "start_s", 110), (4, "sales", 3)],
)  # fmt: skip
def test_a_message_that_was_changed_is_found(line: int, field: str, value: Any) -> None:
    lines = copy.deepcopy(RIGHT)
    lines[line][1]["messages"][0][field] = value
    assert not account(lines)["ok"]


def test_a_message_in_the_wrong_queue_is_found() -> None:
    lines = copy.deepcopy(RIGHT)
    lines[1] = ("consumer-bank", lines[1][1])
    assert not account(lines, {**HELD, "warehouse": Held(0, 0), "bank": Held(2, 0)})["ok"]


def test_the_queues_are_asked_too() -> None:
    for name in HELD:
        assert not account(held={**HELD, name: Held(HELD[name].puts + 1, 0)})["ok"]
        assert not account(held={**HELD, name: Held(HELD[name].puts, 1)})["ok"]
    assert not account(messages=6)["ok"]


def test_half_a_line_of_a_killed_process_is_cut_off(tmp_path: Any) -> None:
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
    numbers = [event.n for producer in made for batch in producer for event in batch]
    assert len(numbers) == len(set(numbers)) == 1500
    assert {event.type for batch in made[0] for event in batch} == {"order", "payment", "sale"}
