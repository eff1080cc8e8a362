"""penstock console: starting, ending, and what it refuses. What it shows is in tests/console."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error

LIBRARIES = ("starlette", "uvicorn")


@pytest.fixture
def libraries() -> None:
    for name in LIBRARIES:
        pytest.importorskip(name, reason="the console's libraries are not installed: pip install 'penstock[console]'")


@pytest.mark.parametrize("ending, code", [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_it_says_where_it_is_and_ends_with_a_signal(
    libraries: None, start: Start, small: Path, ending: signal.Signals, code: int
) -> None:
    process = start("console", small.parent, "--port", 0)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline().decode()
    assert line.startswith("the console is at http://127.0.0.1:")
    process.send_signal(ending)
    assert process.wait(END_S) == code
    assert process.stderr.read() == b""


def test_its_address_can_be_had_as_json(libraries: None, start: Start, small: Path) -> None:
    process = start("console", small.parent, "--port", 0, "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["address"].startswith("http://127.0.0.1:")


def test_an_address_that_others_can_reach_is_warned_about(libraries: None, start: Start, small: Path) -> None:
    process = start("console", small.parent, "--port", 0, "--host", "0.0.0.0")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.wait(END_S)
    assert b"can read all messages here" in process.stderr.read()


def test_a_port_that_is_taken_is_an_error_that_names_it(libraries: None, run: Run, small: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_error(run("console", small.parent, "--port", port, code=exits.SYSTEM))
    assert f"127.0.0.1:{port}" in line and "in use" in line


def test_it_shows_a_folder_and_not_a_queue(libraries: None, run: Run, small: Path) -> None:
    assert "this is a queue; give the folder that it is in" in one_error(run("console", small, code=exits.NO_QUEUE))
    missing = small.parent / "nothing"
    assert "there is no such folder" in one_error(run("console", missing, code=exits.NO_QUEUE))
    assert not missing.exists()
    assert "at least 0.1 s" in one_error(run("console", small.parent, "--interval", "1ms", code=exits.USAGE))


@pytest.mark.parametrize("command, missing", [("console", "uvicorn"), ("metrics", "prometheus_client")])
def test_without_its_libraries_it_says_what_to_install(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, command: str, missing: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(("penstock.console", "penstock.metrics", missing))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    line = one_error(run(command, small.parent, code=exits.USAGE))
    assert f"pip install 'penstock[{command}]'" in line and missing in line
