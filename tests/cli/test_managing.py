"""penstock apply, and what ls tells of a manager's queues."""

from __future__ import annotations

import os
from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import Run, one_error, rows

TOML = """
[defaults]
data_bytes = 65536
durability = "relaxed"
[queues.orders]
depth = 50
[permissions.mail]
"orders" = ["produce", "browse"]
"""


def test_apply_shows_what_it_does_and_then_that_all_is_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(TOML)
    dry = run("apply", tmp_path, "--dry-run").stdout.splitlines()
    assert dry == [
        "would become defaults for new queues: data_bytes = 65536, durability = relaxed",
        "orders: would be created: depth = 50",
        "would be granted to mail: orders = browse produce",
    ]
    assert os.listdir(tmp_path) == ["penstock.toml"]
    found = rows(run("apply", tmp_path, "--dry-run", "--json"))
    assert [(row["action"], row["done"]) for row in found] == [("defaults", False), ("create", False), ("grant", False)]
    assert run("apply", tmp_path).stdout.splitlines()[1] == "orders: created: depth = 50"
    assert (tmp_path / "orders").exists()
    assert run("apply", tmp_path).stdout == f"{tmp_path}: all is as declared\n"
    assert rows(run("apply", tmp_path, "--json")) == []


def test_apply_resizes_and_reports_what_is_not_declared(run: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(TOML)
    run("apply", tmp_path)
    run("put", tmp_path / "orders", "kept")
    run("create", tmp_path / "old", "--slots", "10", "--data-bytes", "64K")
    (tmp_path / "penstock.toml").write_text(TOML.replace("50", "80"))
    assert run("apply", tmp_path).stdout.splitlines() == [
        "orders: changed: depth = 80 (was 50)",
        "old: not declared; it stays as it is",
    ]
    assert rows(run("apply", tmp_path, "--json")) == [
        {"action": "undeclared", "name": "old", "options": {}, "done": False}
    ]
    assert run("get", tmp_path / "orders").stdout == "kept\n"


def test_apply_shows_a_mode_as_it_is_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(TOML.replace("depth = 50", "mode = 0o660"))
    assert "orders: created: mode = 0o660" in run("apply", tmp_path).stdout.splitlines()
    (tmp_path / "penstock.toml").write_text("[defaults]\nmode = 0o600\n")
    assert "mode = 0o600" in run("apply", tmp_path).stdout
    (tmp_path / "penstock.toml").write_text("[defaults]\n")
    assert "mode = nothing (was 0o600)" in run("apply", tmp_path).stdout


def test_apply_says_in_one_line_what_is_wrong(run: Run, tmp_path: Path) -> None:
    assert "penstock.toml" in one_error(run("apply", tmp_path, code=exits.USAGE))
    assert "no such folder" in one_error(run("apply", tmp_path / "missing", code=exits.NO_QUEUE))
    (tmp_path / "penstock.toml").write_text("[gizmos]\n")
    assert "[gizmos]" in one_error(run("apply", tmp_path, code=exits.USAGE))
    (tmp_path / "penstock.toml").write_text(TOML)
    run("apply", tmp_path)
    (tmp_path / "penstock.toml").write_text(TOML.replace("50", "80"))
    with penstock.open(tmp_path / "orders"):
        assert "in use" in one_error(run("apply", tmp_path, "--busy", "0.1", code=exits.BUSY))


def test_ls_tells_name_uuid_and_state(run: Run, tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        made = manager.create("orders", data_bytes=1 << 16)
        manager.create("bills", data_bytes=1 << 16)
        manager.deactivate("bills")
    bills, orders = rows(run("ls", tmp_path, "--json"))
    assert (orders["name"], orders["uuid"], orders["state"]) == ("orders", made.uuid, "configured")
    assert bills["state"] == "inactive"
    text = run("ls", tmp_path).stdout
    assert "inactive" in text and "configured" in text
    (tmp_path / "bills" / "kernel").write_bytes(b"")
    assert rows(run("ls", tmp_path, "--json"))[0]["state"] == "failed"


def test_commands_on_a_directory_ask_no_manager(run: Run, tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        manager.create("orders", data_bytes=1 << 16, relationship="producer")
        manager.deactivate("orders")
    run("put", tmp_path / "orders", "hello")
    assert run("get", tmp_path / "orders").stdout == "hello\n"


def test_create_takes_a_mode(run: Run, tmp_path: Path) -> None:
    run("create", tmp_path / "q", "--data-bytes", "64K", "--mode", "600")
    assert os.stat(tmp_path / "q" / "data.0").st_mode & 0o777 == 0o600
    one_error(run("create", tmp_path / "r", "--mode", "rw", code=exits.USAGE))
    one_error(run("create", tmp_path / "r", "--mode", "777", code=exits.USAGE))
