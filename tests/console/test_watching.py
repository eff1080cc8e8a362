"""What the console keeps and tells: samples over time, figures of several queues as one, bodies as people read them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.console import answers
from penstock.console.history import COARSE_MAX, FINE_MAX, FINE_MIN, SAMPLES_MAX, SLACK, History, Sample, thinned
from penstock.console.messages import HEX_BYTES, shown
from penstock.console.watching import Watch

from .conftest import SMALL


class Time:
    """Of a watch: passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def manager(tmp_path: Path) -> penstock.QueueManager:
    return penstock.QueueManager(tmp_path)


def watch(manager: penstock.QueueManager, time: Time) -> Watch:
    return Watch(manager.root, interval_s=2.0, wall=time, monotonic=time)


def sample(at: float, waiting: float = 0.0) -> Sample:
    return Sample(at, waiting, 0, 0, 0, 0, 0, 0)


def test_the_last_hour_is_kept_in_full_and_a_day_by_the_minute() -> None:
    history = History()
    for n in range(44_000):  # more than a day, every two seconds
        history.add(sample(n * 2.0, n), queues=1)
    end = 44_000 * 2.0
    hour = history.between(end - 3600, end, most=10_000)
    assert len(hour) == 1800 and hour[-1].waiting == 43_999
    day = history.between(end - 86_400, end, most=100_000)
    assert COARSE_MAX <= len(day) <= FINE_MAX + COARSE_MAX + 2 * SLACK
    assert [each.at for each in day] == sorted(each.at for each in day)
    assert day[0].at <= end - 86_000
    assert len(history.between(0, end, most=100)) <= 101


def test_many_queues_share_the_memory() -> None:
    history = History()
    for n in range(5000):
        history.add(sample(float(n)), queues=SAMPLES_MAX)
    assert len(history.between(4000, 5000, most=10_000)) <= FINE_MIN + SLACK + 1000 / 60 + 1


def test_a_peak_is_not_thinned_away() -> None:
    samples = [sample(float(n), 9 if n == 501 else 1) for n in range(1000)]
    few = thinned(samples, 0, 1000, 50)
    assert len(few) == 50 and max(each.waiting for each in few) == 9


def test_what_is_not_known_is_a_gap() -> None:
    unknown = Sample(1.0, *([math.nan] * 7))
    assert answers.columns([unknown, sample(2.0, 3)])["waiting"] == [None, 3]
    (only,) = thinned([unknown, unknown._replace(at=1.1)], 0, 10, 1)
    assert math.isnan(only.waiting)


def test_rates_are_those_since_the_look_before(manager: penstock.QueueManager, time: Time) -> None:
    manager.create("orders", **SMALL)
    seen = watch(manager, time)
    with manager.open("orders") as q:
        seen.round()
        assert answers.queue(seen, "orders")["rates"] == {}
        q.put_many([b"x"] * 10)
        q.get().ack()
        time.now += 5
        seen.round()
        told = answers.queue(seen, "orders")
    assert (told["rates"]["puts"], told["rates"]["acks"], told["waiting"]) == (2.0, 0.2, 9)
    past = answers.history(seen, "orders", span_s=300)
    assert past["puts"] == [None, 2.0]
    assert past["late_s"][0] is None and 0 <= past["late_s"][1] < 5  # of the one that was delivered


def test_a_queue_that_fails_is_told_and_its_plot_has_a_gap(manager: penstock.QueueManager, time: Time) -> None:
    for name in ("good", "bad"):
        manager.create(name, **SMALL)
    seen = watch(manager, time)
    seen.round()
    kernel = manager.root / "bad" / "kernel"
    good = kernel.read_bytes()
    kernel.write_bytes(bytes(64) + good[64:])
    time.now += 2
    seen.round()
    told = answers.queue(seen, "bad")
    assert told["state"] == "failed" and "damaged" in told["error"] and "waiting" not in told
    assert answers.overview(seen, find="", sort="name", skip=0, limit=50)["totals"]["failed"] == 1
    kernel.write_bytes(good)
    time.now += 2
    seen.round()
    assert answers.queue(seen, "bad")["state"] == "configured"
    assert answers.history(seen, "bad", span_s=300)["waiting"] == [0, None, 0]


def test_a_root_that_vanishes_comes_back(manager: penstock.QueueManager, time: Time, tmp_path: Path) -> None:
    manager.create("orders", **SMALL)
    seen = watch(manager, time)
    seen.round()
    tmp_path.rename(tmp_path.parent / "elsewhere")
    seen.round()
    assert seen.error and seen.all() == []
    (tmp_path.parent / "elsewhere").rename(tmp_path)
    seen.round()
    assert seen.error is None and [each.info.name for each in seen.all()] == ["orders"]


def test_a_macro_queue_fails_with_the_last_of_its_members(manager: penstock.QueueManager, time: Time) -> None:
    for name in ("a", "b"):
        manager.create(name, **SMALL)
    manager.create_macro("ab", ["a", "b"])
    manager.create_macro("none", [])
    with manager.open("a") as a:
        a.put_many([b"x"] * 30)
    kernel = manager.root / "a" / "kernel"
    good = kernel.read_bytes()
    seen = watch(manager, time)
    seen.round()
    kernel.write_bytes(b"")
    time.now += 2
    seen.round()
    told = answers.queue(seen, "ab")
    assert (told["state"], told["error"], told["waiting"]) == ("configured", None, 0)
    shutil.rmtree(manager.root / "b")
    seen.round()
    told = answers.queue(seen, "ab")
    assert told["state"] == "failed" and "waiting" not in told
    assert str(manager.root / "b") in told["error"]
    assert answers.queue(seen, "none")["state"] == "configured"
    kernel.write_bytes(good)
    time.now += 2
    seen.round()
    told = answers.queue(seen, "ab")
    assert (told["state"], told["waiting"], told["rates"]) == ("configured", 30, {}), "no burst: they were put before"


def test_a_macro_queue_is_what_its_members_are_together(manager: penstock.QueueManager, time: Time) -> None:
    for name in ("a", "b", "c"):
        manager.create(name, depth=10, **SMALL)
    manager.create_macro("ab", ["a", "b"])
    manager.create_macro("all", ["ab", "c"])
    seen = watch(manager, time)
    with manager.open("a") as a, manager.open("b") as b, manager.open("c") as c:
        seen.round()
        a.put_many([b"x"] * 3)
        b.put_many([b"x"] * 2)
        c.put(b"x")
        a.get(block=False)
        time.now += 2
        seen.round()
        every = answers.queue(seen, "all")
        both = answers.queue(seen, "ab")
    assert (both["waiting"], both["pending"], both["slots"], both["rates"]["puts"]) == (4, 1, 20, 2.5)
    assert (every["waiting"], every["members"], every["rates"]["puts"]) == (5, ["ab", "c"], 3.0)
    assert answers.overview(seen, find="", sort="name", skip=0, limit=50)["totals"]["waiting"] == 5
    with pytest.raises(penstock.Misuse, match="in its members: a, b"):
        answers.messages(seen, "ab", state="waiting", skip=0, limit=10)


def test_thousands_of_queues_come_page_by_page(manager: penstock.QueueManager, time: Time) -> None:
    """Folders that are damaged queues are as many rows as good ones, and are made quicker."""
    for n in range(1200):
        place = manager.root / f"q{n:04}"
        place.mkdir()
        (place / "entry.json").write_bytes(b"{}")
    seen = watch(manager, time)
    seen.round()
    page = answers.overview(seen, find="q1", sort="name", skip=190, limit=50)
    assert page["found"] == 200 and [each["name"] for each in page["queues"]] == [f"q{n}" for n in range(1190, 1200)]
    assert len(answers.overview(seen, find="", sort="-name", skip=0, limit=9999)["queues"]) == answers.ROWS_MAX
    assert page["totals"]["queues"] == page["totals"]["failed"] == 1200


@pytest.mark.parametrize(
    "data, codec, kind, text",
    [
        (b"", 0, "text", ""),
        (b"plain", 0, "text", "plain"),
        (b'{"a": [1]}', 0, "json", '{\n  "a": [\n    1\n  ]\n}'),
        (b'{"a": [1]}', 1, "text", '{"a": [1]}'),
        (b"12", 2, "text", "12"),
        (b'{"big":12345678901234567890}', 2, "json", '{\n  "big": 12345678901234567890\n}'),
        (b"\x00\x01", 0, "bytes", None),
        (b"\xff", 0, "bytes", None),
        (b"\x80\x04K\x01.", 3, "pickle", None),
        ("half ä".encode()[:-1] + b"\xc3", 0, "bytes", None),
    ],
)
def test_a_body_is_shown_as_what_it_is(data: bytes, codec: int, kind: str, text: Any) -> None:
    body = shown(data, len(data), codec)
    assert (body["kind"], body["text"]) == (kind, text)


def test_a_character_that_the_limit_cuts_is_left_out() -> None:
    body = shown("aä".encode()[:2], 100, 0)
    assert (body["kind"], body["text"]) == ("text", "a")
    assert shown(bytes(HEX_BYTES + 1), HEX_BYTES + 1, 0)["hex"].count("\n") == HEX_BYTES // 16 - 1


def test_json_too_deep_to_read_is_shown_as_text() -> None:
    deep = b"[" * 20_000
    assert shown(deep, len(deep), 2)["kind"] == "text"
