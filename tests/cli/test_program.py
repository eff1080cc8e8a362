"""The program as a whole: help, exit codes, errors in one line, how it ends without its libraries."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import exits
from penstock.cli.app import COMMANDS, app

from .conftest import END_S, Run, Start, one_error, rows

NAMES = [module.__name__.rpartition(".")[2].rstrip("_") for module in COMMANDS]


def test_the_commands_are_those_that_were_promised() -> None:
    assert " ".join(NAMES) == (
        "create put get work scripts pipeline peek tail ls apply stat top console metrics report groups cancel purge "
        "redrive move claims publishers check repair resize upgrade backup export import syncer doctor bench completion"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_examples_and_json(run: Run, name: str) -> None:
    text = run(name, "--help").stdout
    assert f"Usage: penstock {name}" in text
    assert "Examples:" in text
    assert f"$ penstock {name}" in text or f"| penstock {name}" in text
    assert "--json" in text


@pytest.mark.parametrize("name", NAMES)
def test_help_breaks_lines_only_where_a_terminal_does(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 70
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    said = run(name, "--help").stdout.split("Usage:")[1].split("╭")[0].splitlines()
    lines = [line.strip() for line in said]
    for line, following in itertools.pairwise(lines[2:]):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > width - 2, (line, following)


def test_help_lists_every_command_and_every_exit_code(run: Run) -> None:
    text = run("--help").stdout
    for name in NAMES:
        assert f" {name} " in text
    for code in exits.MEANING:
        assert f" {code} " in text


def test_no_command_shows_help_and_is_a_usage_error(run: Run) -> None:
    assert "Commands" in run(code=exits.USAGE).stdout


def test_version_tells_whether_the_core_is_compiled(run: Run) -> None:
    text = run("--version").stdout
    assert penstock.__version__ in text
    assert ("compiled" if penstock.compiled else "interpreted") in text


def test_an_unknown_command_and_an_unknown_option_are_usage_errors(run: Run) -> None:
    assert "'pu'" in one_error(run("pu", code=exits.USAGE))
    assert "--nonsense" in one_error(run("--nonsense", code=exits.USAGE))
    assert "--nonsense" in one_error(run("ls", "--nonsense", code=exits.USAGE))


ON_A_QUEUE = {
    "put": ["hello"],
    "get": [],
    "work": ["json:dumps"],
    "peek": [],
    "tail": [],
    "stat": [],
    "top": ["--once"],
    "cancel": ["0123456789abcdef-1-1"],
    "purge": ["--yes"],
    "redrive": [],
    "move": ["other"],
    "check": [],
    "repair": [],
    "resize": ["--slots", "10"],
    "upgrade": [],
    "backup": ["copy"],
    "export": [],
    "import": [],
}


@pytest.mark.parametrize("name", ON_A_QUEUE)
def test_a_missing_queue_is_one_line_that_names_it(run: Run, tmp_path: Path, name: str) -> None:
    line = one_error(run(name, tmp_path / "missing", *ON_A_QUEUE[name], code=exits.NO_QUEUE))
    assert str(tmp_path / "missing") in line


@pytest.mark.parametrize("name", ON_A_QUEUE)
def test_a_folder_that_is_not_a_queue_is_one_line_that_says_so(run: Run, tmp_path: Path, name: str) -> None:
    assert "not a queue" in one_error(run(name, tmp_path, *ON_A_QUEUE[name], code=exits.NO_QUEUE))


@pytest.mark.parametrize(
    "words",
    [
        ["create", "q", "--slots", "many"],
        ["create", "q", "--slots", "0"],
        ["create", "q", "--slots", "-5"],
        ["create", "q", "--data-bytes", "64X"],
        ["create", "q", "--data-bytes", "1"],
        ["create", "q", "--data-bytes", "999999999T"],
        ["create", "q", "--lease", "soon"],
        ["create", "q", "--lease", "0"],
        ["create", "q", "--durability", "eventual"],
        ["create", "q", "--max-attempts", "0"],
        ["create", "q", "--backoff", "soon"],
        ["create", "q", "--backoff", "1", "--backoff-factor", "0.5"],
        ["create", "q", "--expired", "never"],
        ["create", "q", "--dedup-entries", "many"],
        ["put", "q", "a", "--ttl", "1", "--expires-at", "5"],
        ["put", "q", "a", "--dedup-window", "5"],
        ["put", "q", "a", "--dedup-id", ""],
        ["redrive", "q", "--limit", "-1"],
        ["move", "q"],
        ["move", "q", "q"],
        ["put", "q", "a", "--priority", "16"],
        ["put", "q", "a", "--deliver-at", "tomorrow"],
        ["put", "q", "a", "--deliver-at", "2030-01-02T09:00:00"],
        ["put", "q", "a", "--deliver-at", "1e300"],
        ["put", "q", "a", "--deliver-at", "nan"],
        ["put", "q", "a", "--deliver-at", "0", "--delay", "1"],
        ["put", "q", "a", "--delay", "-1"],
        ["put", "q", "a", "--delay", "1y"],
        ["put", "q", "a", "--header", "novalue"],
        ["put", "q", "a", "--timeout", "soon"],
        ["put", "q", "a", "--durability", "eventual"],
        ["put", "q", "a", "--as", "xml"],
        ["put", "q", "{", "--as", "json"],
        ["put", "q", "a", "--file", "b"],
        ["put", "q", "a", "--lines"],
        ["put", "q", "a", "--ids"],
        ["put", "q"],
        ["put"],
        ["get", "q", "--count", "0"],
        ["get", "q", "--count", "x"],
        ["get", "q", "--batch", "0"],
        ["get", "q", "--timeout", "x"],
        ["get", "q", "--lease", "0"],
        ["get", "q", "--keep", "--follow"],
        ["get", "q", "--raw", "--json"],
        ["work", "q"],
        ["work", "q", "nonsense", "--once"],
        ["work", "q", "no_such_module:f", "--once"],
        ["work", "q", "json:no_such_function", "--once"],
        ["work", "q", "json:decoder", "--once"],
        ["work", "q", "json:dumps", "--once", "--until-empty"],
        ["work", "q", "json:dumps", "--processes", "0"],
        ["work", "q", "json:dumps", "--time-limit", "0"],
        ["peek", "q", "--limit", "-1"],
        ["peek", "q", "--state", "gone"],
        ["cancel", "q"],
        ["cancel", "q", "nonsense"],
        ["cancel", "q", "0123456789abcdef-1-1"],
        ["purge", "q"],
        ["backup", "q"],
        ["export", "q", "--state", "gone"],
        ["import", "q", "--skip", "-1"],
        ["import", "q", "--durability", "eventual"],
        ["import", "q", "q/queue.json"],
        ["import", "q"],
        ["bench", "--seconds", "0"],
        ["tail", "q", "--lines", "-1"],
        ["top", "q", "--interval", "0"],
        ["resize", "q"],
        ["resize", "q", "--slots", "0"],
        ["completion", "tcsh"],
        ["completion"],
    ],
    ids=" ".join,
)
def test_a_bad_value_is_a_usage_error_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[0] != "create":
        penstock.create("q", slots=10, data_bytes=1 << 16).close()
    one_error(run(*words, code=exits.USAGE))


def test_a_damaged_index_is_one_line_with_file_and_offset(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    with open(path / "kernel", "r+b") as file:
        file.write(b"XXXXXXXX")
    line = one_error(run("stat", path, code=exits.DAMAGED))
    assert "kernel" in line
    assert "byte 0" in line


def test_a_queue_of_another_format_is_one_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    (path / "queue.json").write_text(json.dumps({"penstock": 999}))
    assert "999" in one_error(run("stat", path, code=exits.NO_QUEUE))


def test_every_command_prints_json_that_parses(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    called = set()

    def said(name: str, *words: object, code: int = 0, input: str | None = None) -> list[dict[str, Any]]:
        called.add(name)
        return rows(run(name, *words, "--json", code=code, input=input))

    assert said("create", path, "--slots", "10", "--data-bytes", "64K")[0]["slots"] == 10
    (put,) = said("put", path, "a")
    assert said("put", path, "--lines", input="b\nc\n") == [{"put": 2}]
    assert [row["body"] for row in said("peek", path)] == ["a", "b", "c"]
    assert [row["body"] for row in said("tail", path, "--no-follow")] == ["a", "b", "c"]
    assert said("get", path)[0]["id"] == put["id"]
    assert said("ls", tmp_path)[0]["waiting"] == 2
    (tmp_path / "penstock.toml").write_text("[queues.q]\n[queues.r]\ndata_bytes = 65536\n")
    assert said("apply", tmp_path, "--dry-run")[0]["name"] == "r"
    assert said("stat", path)[0]["acks"] == 1
    assert said("top", path, "--once", "--interval", "10ms")[0]["queues"][0]["acks"] == 1
    called.add("console")  # it serves until it is ended: tests/cli/test_console.py
    if importlib.util.find_spec("prometheus_client"):
        assert said("metrics", tmp_path, "--once")[0]["metric"] == "penstock_queues"
    called.add("metrics")
    called.add("syncer")  # likewise: tests/cli/test_syncer.py
    called.add("report")  # by a Spark job: tests/spark/test_report.py
    called.add("scripts")  # an app is needed: tests/cli/test_scripts.py
    called.add("pipeline")  # a file is needed: tests/cli/test_pipeline.py
    assert said("groups", path) == []
    assert said("cancel", path, put["id"], code=1) == [{"id": put["id"], "cancelled": False}]
    with penstock.open(path) as q, q.receiver("report") as receiver:
        receiver.claim(1)
        q.put_once("query", 1, [b"once"])
    assert said("claims", "ls", path)[0]["messages"] == 1
    assert said("claims", "release", path, "report")[0]["messages"] == 1
    assert said("publishers", "ls", path)[0]["last"] == 1
    assert said("check", path)[0]["ok"] is True
    assert said("repair", path)[0]["findings"] == []
    assert said("resize", path, "--slots", "20")[0]["slots"] == 20
    assert said("upgrade", path)[0]["changed"] is False
    assert said("backup", path, tmp_path / "copy")[0]["messages"] == 3
    assert said("export", path, tmp_path / "x.jsonl")[0]["messages"] == 3
    assert said("import", path, tmp_path / "x.jsonl")[0]["imported"] == 3
    assert said("redrive", path, code=1) == [{"moved": 0, "left": 0}]
    assert said("move", path, tmp_path / "copy", "--limit", "1", code=2) == []
    assert said("purge", path, "--yes") == [{"removed": 6}]
    assert said("work", path, "builtins:repr", "--until-empty")[0]["event"] == "started"
    assert said("doctor", path)[0]["checks"]
    assert said("bench", tmp_path, "--seconds", "0.1")[0]["results"]
    assert said("completion", "bash")[0]["shell"] == "bash"
    assert called == set(NAMES)


def test_without_typer_or_rich_a_hint_is_printed() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; from penstock.cli import main; "
        "import penstock; raise SystemExit(main(['ls']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=END_S)
    assert done.returncode == exits.USAGE
    assert done.stderr.count("\n") == 1
    assert "'.[cli]'" in done.stderr


def test_a_closed_standard_output_takes_nothing_out_of_the_queue(run: Run, start: Start, small: Path) -> None:
    run("put", small, "precious")
    shell = 'exec "$@" >&-'
    source = str(Path(penstock.__file__).parents[1])
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "penstock", "get", str(small)],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": source},
        timeout=END_S,
    )
    assert done.returncode == exits.SYSTEM
    assert done.stderr == b"penstock: standard output is closed\n"
    assert run("get", small).stdout == "precious\n"


def test_the_program_is_a_typer_app_named_penstock() -> None:
    assert app.info.name == "penstock"
