"""What the console answers: figures, messages and errors as JSON; to whom, and that it takes nothing."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import penstock
from penstock.console import answers
from penstock.store.files import Clock
from penstock.timequeue import check_queue

from .conftest import SMALL, Console, running, until


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("api") / "queues"
    with penstock.QueueManager(root) as manager:
        manager.create("orders", depth=2000, max_attempts=1, **{**SMALL, "data_bytes": 4 << 20})
        manager.create("large", **{**SMALL, "data_bytes": 4 << 20, "spill_bytes": 1 << 16})
        manager.create("parts", **SMALL)
        manager.create_macro("both", ["orders", "parts"])
        with manager.open("orders") as q:
            q.put_many([f"message {n}" for n in range(1500)], headers={"n": "1"})
            q.get(block=False).fail("no stock")
        with manager.open("large") as q:
            q.put(b"ab" * 200_000)
            q.put("ä" * 100_000)
            q.put(b'{"a": "\\ud83d\\ude00", "b": "\\ud800"}')  # half a character is valid JSON
    yield root
    for name in ("orders", "large", "parts"):
        assert check_queue(root / name) == []


@pytest.fixture(scope="module")
def console(root: Path) -> Iterator[Console]:
    with running(root) as started:
        yield started


def test_every_answer_forbids_what_the_page_does_not_need(console: Console) -> None:
    for path in ("", "console.js", "api/queues", "api/queues/orders", "api/queues/none", "no/such/page"):
        _, _, headers = console.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_possible(console: Console, method: str) -> None:
    for path in ("", "api/queues", "api/queues/orders", "api/queues/orders/messages", "api/queues/orders/messages/x"):
        assert console.ask(path, method=method)[0] == 405
    assert console.ask("api/queues", method="HEAD")[0] == 200


def test_a_name_that_leads_here_from_elsewhere_gets_nothing(console: Console) -> None:
    """As when a site's name is made to point to this machine, to read what its pages may not."""
    for name, status in (("localhost", 200), ("127.0.0.1", 200), ("attacker.example", 403), ("", 403)):
        connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=20)
        connection.request("GET", "/api/queues", headers={"Host": name})
        answer = connection.getresponse()
        assert answer.status == status, name
        assert status == 200 or b"queues" not in answer.read()
        connection.close()


def test_messages_are_reached_on_every_page(console: Console) -> None:
    seen: list[str] = []
    skip = 0
    while True:
        part = console.told(f"api/queues/orders/messages?skip={skip}&limit=100")
        seen += [message["preview"] for message in part["messages"]]
        skip += 100
        if not part["more"]:
            break
    assert seen == [f"message {n}" for n in range(1, 1500)]
    assert len(console.told("api/queues/orders/messages?limit=5000")["messages"]) == 100


def test_a_message_is_found_by_its_id_also_after_it_was_moved(console: Console) -> None:
    (letter,) = console.told("api/queues/orders/messages?state=dead")["messages"]
    assert (letter["reason"], letter["error"], letter["id"] == letter["here"]) == ("max_attempts", "no stock", False)
    for id in (letter["id"], letter["here"]):
        found = console.told(f"api/queues/orders/messages/{id}?state=dead")
        assert (found["id"], found["body"]["text"], found["headers"]) == (letter["id"], "message 0", {"n": "1"})
        assert [each["error"] for each in found["history"]] == ["no stock"]
    status, told, _ = console.ask(f"api/queues/orders/messages/{letter['id']}")
    assert (status, told["gone"]) == (404, True) and "no such message" in told["error"]
    assert console.ask("api/queues/orders/messages/no-id")[0] == 400


def test_of_a_large_body_a_part_is_shown(console: Console) -> None:
    raw, text, face = (
        console.told(f"api/queues/large/messages/{message['here']}")
        for message in console.told("api/queues/large/messages")["messages"]
    )
    assert (raw["body"]["bytes"], raw["body"]["shown_bytes"], raw["preview"]) == (400_000, 65536, "")
    assert raw["body"]["hex"].startswith("00000000  61 62 61 62")
    assert set(text["body"]["text"]) == {"ä"} and text["body"]["shown_bytes"] == 65536
    assert face["body"]["text"] == '{\n  "a": "\U0001f600",\n  "b": "\ud800"\n}'


@pytest.mark.parametrize(
    "path, status",
    [
        ("api/queues/none", 404),
        ("api/queues/none/history", 404),
        ("api/queues/none/messages", 404),
        (f"api/queues/{quote('../orders', safe='')}", 404),
        (f"api/queues/{quote('../../etc', safe='')}/messages", 404),
        ("api/queues/orders/messages?state=everything", 400),
        ("api/queues/orders/messages?skip=-1", 400),
        ("api/queues?skip=many", 400),
        ("api/queues?sort=zz", 400),
        ("api/queues?sort=--name", 400),
        ("api/queues/both/messages", 400),
        ("api/nothing", 404),
    ],
)
def test_what_cannot_be_is_an_error_that_says_so(console: Console, path: str, status: int) -> None:
    found, told, _ = console.ask(path)
    assert found == status
    assert told["error"]
    assert "create" not in told["error"], "this only looks"


def test_every_order_can_be_asked_for(console: Console) -> None:
    for sort in (answers.BY_NAME, *answers.SORTS):
        one, other = (console.told(f"api/queues?sort={sign}{sort}")["queues"] for sign in ("", "-"))
        assert len(one) == len(other) == 5
    assert console.told("api/queues?sort=-name")["queues"][0]["name"] == "parts"


def test_queues_that_come_and_go_are_noticed(console: Console, root: Path) -> None:
    manager = penstock.QueueManager(root)
    manager.create("new", **SMALL)
    names = lambda: [each["name"] for each in console.told("api/queues")["queues"]]  # noqa: E731
    until(lambda: "new" in names(), "the new one")
    manager.destroy("new")
    until(lambda: "new" not in names(), "gone")


def test_looking_opens_nothing_for_long_and_syncs_nothing(console: Console, root: Path) -> None:
    """A manager that wants a queue for itself, to resize it say, finds nobody there between two looks."""
    before = console.told("api/queues/parts")["stats"]
    until(lambda: console.told("api/queues/parts")["at"] > before_at(before, console), "another look")
    after = console.told("api/queues/parts")["stats"]
    assert (after["syncs"], after["index_syncs"]) == (before["syncs"], before["index_syncs"])
    assert console.told("api/queues/parts")["people"] == []
    with penstock.QueueManager(root, busy_s=10) as manager:
        until(lambda: _configured(manager), "a moment in which it is not open")


def before_at(_: Any, console: Console) -> float:
    return float(console.told("api/queues")["started_at"]) + 1.0


def _configured(manager: penstock.QueueManager) -> bool:
    try:
        manager.configure("parts", lease=Clock().wall_us() % 50 + 10)
    except penstock.QueueInUse:
        return False
    return True
