"""penstock metrics: the figures of all queues as Prometheus reads them, over HTTP and printed."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import exits
from penstock.timequeue import measures

from .conftest import END_S, Run, Start, one_error

pytest.importorskip("prometheus_client", reason="not installed: pip install 'penstock[metrics]'")

from penstock.metrics import BOUNDS_S

SMALL: dict[str, Any] = {"data_bytes": 256 << 10, "durability": "relaxed"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with penstock.QueueManager(tmp_path / "queues") as manager:
        manager.create("orders", depth=50, max_attempts=2, **SMALL)
        manager.create("idle", **SMALL)
        manager.create("damaged", **SMALL)
        manager.create_macro("all", ["orders", "idle"])
        with manager.open("orders") as q:
            q.put_many([b"x"] * 10)
            q.get().ack()
            q.get().release()
            q.get().dead_letter("poison")
            q.put(b"later", delay=1000)
        kernel = manager.root / "damaged" / "kernel"
        kernel.write_bytes(bytes(64) + kernel.read_bytes()[64:])
        yield manager.root


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by name and queue, as Prometheus' own parser reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {(each.name, each.labels.get("queue", "")): each.value for family in families for each in family.samples}


def test_a_scrape_has_the_figures_of_every_queue(start: Start, root: Path) -> None:
    process = start("metrics", root, "--port", 0)
    assert process.stdout is not None and process.stderr is not None
    address = process.stdout.readline().decode().split()[3]
    with penstock.open(root / "orders") as q:
        held = q.get()
        with urllib.request.urlopen(address, timeout=END_S) as answer:
            assert answer.headers["content-type"].startswith("text/plain")
            found = samples(answer.read().decode())
        held.release()
    process.send_signal(signal.SIGINT)
    assert process.wait(END_S) == exits.INTERRUPTED
    assert process.stderr.read() == b""
    of = {name: value for (name, queue), value in found.items() if queue == "orders"}
    assert (of["penstock_up"], of["penstock_depth"], of["penstock_waiting"]) == (1, 9, 8)
    assert (of["penstock_pending"], of["penstock_timed"]) == (1, 1)
    assert (of["penstock_holders"], of["penstock_clients"]) == (1, 1)
    assert (of["penstock_depth_limit"], of["penstock_vacant"]) == (50, 41)
    assert (of["penstock_puts_total"], of["penstock_gets_total"], of["penstock_acks_total"]) == (11, 4, 1)
    assert (of["penstock_retries_total"], of["penstock_dead_letters_total"]) == (1, 1)
    assert of["penstock_oldest_due_seconds"] > 0
    assert (of["penstock_producers"], of["penstock_consumers"]) == (0, 1)
    assert found["penstock_waiting", "orders.dead"] == 1
    assert found["penstock_queues", ""] == 5


def test_times_are_histograms_of_fixed_buckets(run: Run, root: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = {each.name: each for each in text_string_to_metric_families(run("metrics", root, "--once").stdout)}
    for name, count in (("waiting_seconds", 2), ("lateness_seconds", 2), ("service_seconds", 1)):
        family = families[f"penstock_{name}"]
        assert family.type == "histogram"
        mine = [each for each in family.samples if each.labels["queue"] == "orders"]
        buckets = [each.value for each in mine if each.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == count and len(buckets) == len(BOUNDS_S) + 1
        assert [each.value for each in mine if each.name.endswith("_count")] == [count]
        assert [each.value > 0 for each in mine if each.name.endswith("_sum")] == [True]
    rates = {tuple(each.labels.values()) for each in families["penstock_per_second"].samples}
    assert {("puts", "orders", "1m"), ("acks", "orders", "15m"), ("dead_letters", "idle", "1s")} <= rates


def test_bounds_of_histograms_are_bounds_that_queues_count_by() -> None:
    assert set(BOUNDS_S) <= set(measures.BOUNDS_S)


def test_a_queue_that_fails_is_down_and_the_others_are_up(run: Run, root: Path) -> None:
    found = samples(run("metrics", root, "--once").stdout)
    assert [found["penstock_up", name] for name in ("damaged", "idle", "orders")] == [0, 1, 1]
    assert ("penstock_waiting", "damaged") not in found
    assert found["penstock_oldest_due_seconds", "idle"] == 0


def test_members_of_macro_queues_are_named(run: Run, root: Path) -> None:
    text = run("metrics", root, "--once").stdout
    assert 'penstock_macro_member{macro="all",queue="orders"} 1.0' in text
    assert 'kind="macro",queue="all"' in text
    assert ("penstock_up", "all") not in samples(text)


def test_counters_only_grow_and_a_look_changes_nothing(run: Run, root: Path) -> None:
    first = samples(run("metrics", root, "--once").stdout)
    second = samples(run("metrics", root, "--once").stdout)
    changing = ("penstock_oldest_due_seconds", "penstock_late_seconds", "penstock_per_second")
    assert {at: value for at, value in first.items() if at[0] not in changing} == {
        at: value for at, value in second.items() if at[0] not in changing
    }


def test_it_serves_a_folder_and_not_a_queue(run: Run, root: Path) -> None:
    assert "this is a queue" in one_error(run("metrics", root / "orders", code=exits.NO_QUEUE))
