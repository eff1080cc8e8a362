"""penstock claims."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import Run, one_error, rows


def claimed(path: Path) -> None:
    with penstock.open(path) as q:
        q.put_many([b"%d" % i for i in range(9)])
        with q.receiver("nightly") as nightly, q.receiver("other") as other:
            nightly.claim(2)
            other.claim(3)
            nightly.claim(1)


def test_claims_are_listed_with_their_receivers(run: Run, small: Path) -> None:
    assert run("claims", "ls", small).stdout == "no open claims\n"
    assert run("claims", "receivers", small).stdout == "no receivers\n"
    assert run("claims", "ls", small, "--json").stdout == run("claims", "receivers", small, "--json").stdout == ""
    claimed(small)
    found = rows(run("claims", "ls", small, "--json"))
    assert [(row["receiver"], row["claim"], row["messages"], row["in_use"]) for row in found] == [
        ("nightly", 1, 2, False), ("nightly", 2, 1, False), ("other", 1, 3, False),
    ]  # fmt: skip
    assert all(row["seen_at"] > 1e9 for row in found)
    assert len(rows(run("claims", "ls", small, "nightly", 2, "--json"))) == 1
    text = run("claims", "ls", small).stdout
    assert "nightly" in text and "running" not in text
    with penstock.open(small) as q, q.receiver("nightly"):
        assert run("claims", "ls", small).stdout.count("running") == 2


def test_released_messages_wait_again(run: Run, small: Path) -> None:
    claimed(small)
    assert "claim 2 released: 1 message" in run("claims", "release", small, "nightly", 2).stdout
    assert rows(run("claims", "release", small, "other", "--json")) == [
        {"receiver": "other", "claim": 1, "messages": 3}
    ]
    assert [row["body"] for row in rows(run("peek", small, "--json"))] == ["2", "3", "4", "5", "6", "7", "8"]
    run("claims", "release", small, "nightly")
    assert run("claims", "ls", small).stdout == "no open claims\n"


def test_what_cannot_be_released_is_said_in_one_line(run: Run, small: Path) -> None:
    claimed(small)
    assert "which receiver" in one_error(run("claims", "release", small, code=exits.USAGE))
    assert "'nobody'" in one_error(run("claims", "release", small, "nobody", code=exits.NOTHING))
    assert "no claim 7" in one_error(run("claims", "release", small, "nightly", 7, code=exits.USAGE))
    with penstock.open(small) as q, q.receiver("nightly"):
        for action in ("release", "forget"):
            line = one_error(run("claims", action, small, "nightly", code=exits.BUSY))
            assert line.endswith("receiver 'nightly' is running: end it first")
    assert not (small / "claims" / "nobody").exists()


def test_a_receiver_that_will_not_come_back_is_forgotten(run: Run, small: Path) -> None:
    claimed(small)
    found = rows(run("claims", "receivers", small, "--json"))
    assert [(row["name"], row["claims"], row["messages"]) for row in found] == [("nightly", 2, 3), ("other", 1, 3)]
    assert "which receiver" in one_error(run("claims", "forget", small, code=exits.USAGE))
    assert "open claims (1, 2)" in one_error(run("claims", "forget", small, "nightly", code=exits.USAGE))
    run("claims", "release", small, "nightly")
    assert run("claims", "receivers", small, "nightly").stdout.split()[-6:-3] == ["nightly", "0", "0"]
    assert "forgotten" in run("claims", "forget", small, "nightly").stdout
    assert "nightly" not in run("claims", "receivers", small).stdout
    assert "no receiver 'nightly'" in one_error(run("claims", "forget", small, "nightly", code=exits.NOTHING))
    run("claims", "release", small, "other")
    assert rows(run("claims", "forget", small, "other", "--json")) == [{"receiver": "other", "forgotten": True}]


def test_a_missing_queue_is_one_line_that_names_it(run: Run, tmp_path: Path) -> None:
    for action in ("ls", "release"):
        line = one_error(run("claims", action, tmp_path / "missing", "r", code=exits.NO_QUEUE))
        assert str(tmp_path / "missing") in line
