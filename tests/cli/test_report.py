"""The page of a report, and what ``penstock report`` says when there can be none."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import charts, page
from penstock.spark.figures import Figures, Moment, step_start_s
from tests.reports import EVIL, Words, some

from .conftest import Run, one_error

# ---------------------------------------------------------------- the page


def test_what_messages_bring_is_text_in_the_page() -> None:
    read = Words(page.html(some()))
    assert EVIL in read.words
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "a"}
    for _, attributes in read.elements:
        assert not attributes.keys() & {"src", "href", "onerror", "onclick"}


def test_the_page_asks_for_nothing_elsewhere() -> None:
    text = page.html(some())
    assert "url(" not in text and "@import" not in text and "http:" not in text and "https:" not in text
    assert "default-src 'none'" in text


def test_every_figure_is_in_the_page() -> None:
    words = Words(page.html(some())).words
    for said in ("123,456", "dead-lettered", "765,432", "no type", "1.5 h", "44 s", "2.31 d"):
        assert said in words, said
    for title in ("Throughput", "Waiting time", "Lateness", "Retries by type", "Retries by key", "Slowest messages"):
        assert title in words, title


def test_bars_are_as_high_as_their_shares() -> None:
    drawn = charts.over_time(
        [Moment(0, {"acked": 100, "failed": 0, "gone": 0}), Moment(60, {"acked": 50, "failed": 50, "gone": 0})], 60, "t"
    )[0]
    wide = drawn.split('<div class="plot narrow">')[0]
    heights = {
        name: [float(each) for each in re.findall(rf'class="{name}"[^>]*? height="([\d.]+)"', wide)]
        for name in ("acked", "failed")
    }
    assert heights["acked"][0] == pytest.approx(2 * heights["acked"][1], abs=0.2)
    assert heights["failed"] == [pytest.approx(heights["acked"][1], abs=0.2)]


def test_an_empty_history_gives_a_page_that_says_so() -> None:
    words = Words(page.html(Figures(title="/q/orders", made_s=1.0))).words
    assert "There is no history here" in words and "--history-bytes" in words
    assert "Throughput" not in words


def test_a_page_of_parts_of_your_own_may_have_all_of_a_report() -> None:
    body = page.sections(some())
    read = Words(page.document(title=EVIL, header="<h1>mine</h1>", body=body, footer="end", style="h1 { top: 0 }"))
    assert [tag for tag, _ in read.elements].count("h1") == 1 and "script" not in {tag for tag, _ in read.elements}
    for said in (EVIL, "mine", "Throughput", "123,456", "end", "h1 { top: 0 }"):
        assert said in read.words, said


def test_the_steps_of_a_distribution_are_thirds_of_powers_of_ten() -> None:
    assert [round(step_start_s(step), 3) for step in (-3, -2, -1, 0, 1, 2, 3)] == [
        0.1,
        0.215,
        0.464,
        1,
        2.154,
        4.642,
        10,
    ]


# ---------------------------------------------------------------- errors


def test_what_cannot_be_is_said_in_a_line_before_spark_is_started(run: Run, small: Path, tmp_path: Path) -> None:
    assert "no queue" in one_error(run("report", tmp_path / "nothing", code=3))
    assert "no such folder" in one_error(run("report", small, "-o", tmp_path / "no" / "page.html", code=2))
    assert "is not a time" in run("report", small, "--since", "yesterday", code=2).stderr


def test_without_spark_the_error_says_what_to_install(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return real(name, *rest, **more)

    for name in [each for each in sys.modules if each in ("penstock.spark.report", "penstock.spark.outcomes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    error = one_error(run("report", small, "-o", tmp_path / "page.html", code=2))
    assert "pyspark" in error and "penstock[spark]" in error


def test_without_java_the_error_says_what_to_do(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")
    from pyspark.sql import SparkSession

    from penstock.spark import java

    def none(*_: Any) -> java.Java:
        raise java.NoJava([])

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda *_: None)
    monkeypatch.setattr(java, "find", none)
    assert "needs Java" in one_error(run("report", small, "-o", tmp_path / "page.html", code=1))
