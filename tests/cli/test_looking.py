"""penstock peek, ls and stat: looking changes nothing."""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path

import msgspec

import penstock
from penstock.cli import exits
from penstock.stdlib import Queue

from .conftest import Run, one_error, rows


def test_peek_shows_messages_in_order_and_takes_none(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="".join(f"{i}\n" for i in range(20)))
    run("put", small, "urgent", "--priority", "9", "--type", "order", "--key", "k")
    result = run("peek", small)
    assert len(result.stdout.splitlines()) == 1 + 10
    assert "urgent" in result.stdout.splitlines()[1]
    assert [row["body"] for row in rows(run("peek", small, "-n", "3", "--json"))] == ["urgent", "0", "1"]
    assert len(rows(run("peek", small, "-n", "0", "--json"))) == 21
    with penstock.open(small) as q:
        assert (q.qsize(), q.stats().gets) == (21, 0)


def test_peek_shows_a_pickle_and_does_not_unpickle_it(run: Run, small: Path) -> None:
    with Queue[object](small) as q:
        q.put((1, 2))
    (row,) = rows(run("peek", small, "--json"))
    assert (row["kind"], base64.b64decode(row["body_base64"])) == ("pickle", pickle.dumps((1, 2), protocol=5))


def test_peek_at_pending_messages_shows_who_has_them(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a", b"b"])
        message = q.get(block=False)
        (row,) = rows(run("peek", small, "--state", "pending", "--json"))
        assert (row["id"], row["state"], row["attempts"]) == (message.id, "pending", 1)
        assert row["lease_ends_at"] is not None
        assert len(rows(run("peek", small, "--state", "all", "--json"))) == 2


def test_peek_at_an_empty_queue_shows_nothing(run: Run, small: Path) -> None:
    assert run("peek", small).stdout == ""
    assert run("peek", small, "--json").stdout == ""


def test_peek_shows_control_characters_and_markup_as_text(run: Run, small: Path) -> None:
    run("put", small, "-", "--key", "[red]k[/red]", input=b"a\x1b[31m\nb [bold]c[/bold]\xff")
    text = run("peek", small).stdout
    assert "\x1b" not in text
    assert "a\\x1b[31m\\nb [bold]c[/bold]\\xff" in text
    assert "[red]k[/red]" in text


def test_ls_lists_queues_below_a_folder_with_what_they_hold(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b/c", ".hidden/d"):
        penstock.create(tmp_path / name, slots=10, data_bytes=1 << 16).close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "queue.json").write_text('{"something": "else"}')
    run("put", tmp_path / "b/c", "hello")
    found = rows(run("ls", tmp_path, "--json"))
    assert [(row["path"], row["waiting"]) for row in found] == [(str(tmp_path / "a"), 0), (str(tmp_path / "b/c"), 1)]
    assert found[1]["used_bytes"] > 0
    text = run("ls", tmp_path).stdout
    assert len(text.splitlines()) == 3
    assert "waiting" in text
    assert len(rows(run("ls", tmp_path / "a", "--json"))) == 1


def test_ls_lists_a_queue_that_cannot_be_opened_with_the_reason(run: Run, tmp_path: Path) -> None:
    penstock.create(tmp_path / "good", slots=10, data_bytes=1 << 16).close()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "queue.json").write_text(json.dumps({"penstock": 999}))
    bad, good = rows(run("ls", tmp_path, "--json"))
    assert "999" in bad["error"]
    assert good["waiting"] == 0
    assert "999" in run("ls", tmp_path).stdout


def test_ls_lists_a_queue_whose_description_is_damaged_or_gone(run: Run, tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        for name in ("cut", "foreign", "gone", "macro"):
            if name == "macro":
                manager.create_macro(name, [])
            else:
                manager.create(name, data_bytes=1 << 16)
    penstock.create(tmp_path / "plain", slots=10, data_bytes=1 << 16).close()
    (tmp_path / "cut" / "queue.json").write_bytes(b'{"penstock": 1')
    (tmp_path / "foreign" / "queue.json").write_bytes(b"{}")
    (tmp_path / "gone" / "queue.json").unlink()
    (tmp_path / "macro" / "entry.json").write_bytes(b"{")
    (tmp_path / "plain" / "queue.json").write_bytes(bytes(100))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "entry.json").write_bytes(b'{"entry": "of another program"}')
    found = {row["name"]: row for row in rows(run("ls", tmp_path, "--json"))}
    assert list(found) == ["cut", "foreign", "gone", "macro", "plain"]
    for name, row in found.items():
        file = "entry.json" if name == "macro" else "queue.json"
        assert row["state"] == "failed" and file in row["error"], row
    assert "queue.json" in run("ls", tmp_path).stdout


def test_ls_of_a_folder_that_is_not_there_is_one_line(run: Run, tmp_path: Path) -> None:
    one_error(run("ls", tmp_path / "missing", code=exits.NO_QUEUE))
    assert run("ls", tmp_path).stdout == ""


def test_stat_shows_every_figure_and_the_clients(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a", b"b"])
        message = q.get(block=False)
        text = run("stat", small).stdout
        for field in msgspec.structs.fields(penstock.Stats):
            assert field.name in text or field.name == "clients"
        (found,) = rows(run("stat", small, "--json"))
        assert set(found) == {field.name for field in msgspec.structs.fields(penstock.Stats)}
        assert (found["waiting"], found["pending"]) == (1, 1)
        assert (found["clients"][0]["pid"], found["clients"][0]["holds"]) == (os.getpid(), 1)
        message.release()


def test_stat_shows_how_long_and_how_often(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a"] * 4)
        q.get(block=False).ack()
        lines = [line.split() for line in run("stat", small).stdout.splitlines() if line]
        found = {line[0]: line[1:] for line in lines}
        assert found["waiting_time"][0] == found["lateness"][0] == found["service_time"][0] == "1"
        assert float(found["puts/s"][0]) > float(found["puts/s"][1]) > float(found["puts/s"][2]) > 0
        (client,) = [line for line in lines if line[:2] == ["0", str(os.getpid())]]
        assert client[3:5] == ["produces,", "consumes"]
        (figures,) = rows(run("stat", small, "--json"))
        assert figures["service_time"]["buckets"][0][1] == 1
        assert figures["waiting_time"]["p99_s"] <= figures["waiting_time"]["max_s"]


def test_stat_of_a_folder_is_a_line_for_each_queue_and_their_total(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, count in (("orders", 3), ("mail", 2)):
        with penstock.create(root / name, slots=10, data_bytes=1 << 16, durability="relaxed") as q:
            q.put_many([b"x"] * count)
    (root / "broken").mkdir()
    (root / "broken" / "queue.json").write_text('{"penstock": 1')
    text = run("stat", root).stdout
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:3] == ["queue", "state", "waiting"]
    found = {line[0]: line[1:] for line in lines}
    assert found["orders"][:4] == ["configured", "3", "0", "10"]
    assert (found["mail"][1], found["broken"][0]) == ("2", "failed")
    assert lines[-1][:6] == ["3", "queues", "5", "0", "20", "5"]
    (every,) = rows(run("stat", root, "--json"))
    assert (every["total"]["waiting"], every["states"]) == (5, {"failed": 1, "configured": 2})
    assert every["queues"]["mail"]["stats"]["puts"] == 2 and "queue.json" in every["queues"]["broken"]["error"]


def test_stat_of_a_folder_without_queues_says_that_it_is_none(run: Run, tmp_path: Path) -> None:
    assert "not a queue" in one_error(run("stat", tmp_path, code=exits.NO_QUEUE))
    assert "no queue here" in one_error(run("stat", tmp_path / "missing", code=exits.NO_QUEUE))
