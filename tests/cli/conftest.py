"""How the tests call the program: in this process where that is enough, as a process where signals and pipes matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.app import app

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]

END_S = 20  # a process that has not ended by then never will


@pytest.fixture
def run() -> Run:
    """Run one command line in this process."""

    def call(*words: object, input: bytes | str | None = None, code: int | None = 0) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], input=input, prog_name="penstock")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        return result

    return call


@pytest.fixture
def start() -> Iterator[Start]:
    """Start one command line as a process of its own."""
    started: list[subprocess.Popen[bytes]] = []
    source = str(Path(penstock.__file__).parents[1])

    def call(*words: object, **options: Any) -> subprocess.Popen[bytes]:
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, "PYTHONPATH": source},
            **options,
        }
        process = subprocess.Popen([sys.executable, "-m", "penstock", *(str(word) for word in words)], **settings)
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small queue: its path."""
    path = tmp_path / "orders"
    penstock.create(path, slots=100, data_bytes=1 << 20, durability="relaxed").close()
    yield path
    assert penstock.timequeue.check_queue(path) == []


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A queue with room for more than 10,000 messages: its path."""
    path = tmp_path / "many"
    penstock.create(path, slots=20_000, data_bytes=16 << 20, durability="relaxed").close()
    yield path
    assert penstock.timequeue.check_queue(path) == []


def rows(result: Result) -> list[dict[str, Any]]:
    """Standard output as JSON, one object a line."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def one_error(result: Result) -> str:
    """The one line that an error is; nothing else on standard error, nothing on standard output."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("penstock: ")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return lines[0]
