"""``penstock report``: a page from the history of queues, by a Spark job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.cli.conftest import Run, rows
from tests.reports import EVIL, Words

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two queues at whose end stands: 30 acknowledged of each, 6 attempts of each failed, one dead letter."""
    where = tmp_path / "queues"
    with penstock.QueueManager(where) as manager:
        for name in ("orders", "mail"):
            manager.create(name, data_bytes=256 << 10, durability="relaxed", history_bytes=1 << 20)
            with manager.open(name) as q:
                for number in range(31):
                    q.put(number, type="order" if number % 2 else "refund", key=f"{name}.example")
                failed = 0
                while q.qsize():
                    message = q.get(block=False)
                    if message.body == 30:
                        message.dead_letter("unreadable")
                    elif failed < 6 and message.attempts == 1:
                        failed += 1
                        message.fail(f"{EVIL} happened")
                    else:
                        message.ack()
            manager.close(name)
    return where


def test_a_report_of_all_queues_of_a_root(spark: Any, run: Run, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    (answer,) = rows(run("report", root, "-o", file, "--json"))
    assert answer == {
        "page": str(file),
        "outcomes": 2 * 37,
        "results": {"acked": 60, "failed": 12, "dead-lettered": 2},
    }
    read = Words(file.read_text())
    for said in ("orders.example", "mail.example", "unreadable", f"{EVIL} happened", "Queues"):
        assert said in read.words, said
    assert "script" not in {tag for tag, _ in read.elements}


def test_a_report_of_one_queue_and_of_a_macro_queue(spark: Any, run: Run, root: Path, tmp_path: Path) -> None:
    assert "37 outcomes" in run("report", root / "orders", "-o", tmp_path / "one.html").stdout
    with penstock.QueueManager(root) as manager:
        manager.create_macro("both", ["orders", "mail"])
    assert "74 outcomes" in run("report", root / "both", "-o", tmp_path / "both.html").stdout


def test_the_figures_are_those_of_the_history(spark: Any, root: Path) -> None:
    from penstock.spark.outcomes import history
    from penstock.spark.report import figures

    found = figures(history(root, spark), title="t")
    outcomes = [each for name in ("orders", "mail") for each in penstock.outcomes(root / name)]
    first = sorted((each.taken_us - each.enqueued_us) / 1e6 for each in outcomes if each.attempts == 1)
    assert found.waiting.count == len(first) == 62
    assert found.waiting.max_s == pytest.approx(first[-1]) and found.waiting.p50_s == pytest.approx(first[30])
    assert sum(found.waiting.steps.values()) == sum(found.lateness.steps.values()) == 62
    assert sum(sum(each.counts.values()) for each in found.moments) == len(outcomes)
    assert {each.name: (each.done, each.failed, each.retries, each.gone) for each in found.keys} == {
        "orders.example": (30, 6, 6, 1),
        "mail.example": (30, 6, 6, 1),
    }
    assert sum(each.retries for each in found.types) == 12 == found.retries
    totals = [each.total_s for each in found.slowest]
    assert totals == sorted(totals, reverse=True) and len(totals) == 12
    assert found.failures[0].count == 12


def test_only_what_ended_since_then_is_in_the_report(spark: Any, run: Run, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert "74 outcomes" in run("report", root, "-o", file, "--since", "1h").stdout
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    assert "no history here since then" in run("report", root, "-o", file, "--since", later).stdout
    assert "There is no history here since" in file.read_text()


def test_a_queue_without_a_history_gives_a_page_that_says_so(
    spark: Any,
    run: Run,
    small: Path,
    tmp_path: Path,
) -> None:
    file = tmp_path / "page.html"
    assert "no history" in run("report", small, "-o", file).stdout
    assert "There is no history here" in file.read_text()
