"""The pages keep their word: tests they name exist, examples run, links, paths and names lead somewhere."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from bench import plan

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/penstock"
PAGES = ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
README = TEXTS["README.md"]


def _prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", _prose(text))


# ---------------------------------------------------------------- guarantees


NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXTS["docs/guarantees.md"])))


@pytest.mark.parametrize("file, name", NAMED_TESTS, ids=[name for _, name in NAMED_TESTS])
def test_a_test_that_shows_a_promise_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert re.search(rf"^(def {name}\(|class {name}\b|{name} = )", text, re.MULTILINE), f"{file} has no {name}"


def test_every_promise_names_a_test() -> None:
    section = TEXTS["docs/guarantees.md"].split("\n## What is promised\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| **")]
    assert len(rows) > 15
    for row in rows:
        assert "::test_" in row or "::Test" in row, row[:80]


# ---------------------------------------------------------------- examples


def test_the_first_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(_blocks(README, "python")[0], names)
    assert capsys.readouterr().out == "{'order': 7}\n"
    assert names["q"].stats().acks == 1
    names["q"].close()


def test_the_second_example_runs(path: Path) -> None:
    with penstock.create(path, durability="relaxed") as q:
        held = q.put(b"held")
        message = q.get(timeout=1)
        names = {
            "q": q,
            "message": message,
            "message_id": q.put(b"wrong", delay=1000),
            "bodies": [b"a", b"b"],
            "tomorrow_at_nine": datetime.now(UTC) + timedelta(days=1),
        }
        exec(_blocks(README, "python")[1], names)
        assert message.id == held
        assert [m.body for m in names["messages"]] == [b"a", b"b"]  # type: ignore[attr-defined]
        assert q.stats().acks == 2
        assert q.qsize() == 0


def test_the_example_in_place_of_the_standard_library_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(_blocks(README, "python")[2], names)
    tasks = names["tasks"]
    assert tasks.maxsize == 100
    exec(_blocks(TEXTS["docs/stdlib.md"], "python")[0], names)
    assert capsys.readouterr().out == "{'order': 7}\n"
    assert tasks.unfinished_tasks == 0
    names["q"].close()
    tasks.close()


def test_the_examples_of_consumers_run(path: Path, capsys: Any) -> None:
    handled: list[Any] = []

    def handle(body: Any) -> None:
        handled.append(body)
        if body == "bad":
            raise ValueError
        if body == "last":
            raise KeyError

    async def handle_async(body: Any) -> None:
        handled.append(body)

    loop, failing, coroutine = _blocks(TEXTS["docs/consumers.md"], "python")
    with penstock.create(path, durability="relaxed") as q:
        names: dict[str, Any] = {"q": q, "handle": handle, "handle_async": handle_async}
        q.put_many(["a", "last"])
        with pytest.raises(KeyError):
            exec(loop, names)
        assert q.purge() == 1
        q.put_many(["b", "bad", "c"])
        exec(failing, names)
        assert q.purge() == 1
        exec(coroutine, names)
        q.put_many(["d", "e"], priority=0)
        asyncio.run(names["main"]())
        assert handled == ["a", "last", "b", "bad", "c", "e", {"order": 7}]
        assert q.stats().acks == 6


def test_the_examples_of_asking_run(path: Path, capsys: Any) -> None:
    with penstock.create(path, durability="relaxed") as q, penstock.open(path) as other:
        first, handles, later = _blocks(TEXTS["docs/asking.md"], "python")
        question, _, receiver = first.partition("\n\n")
        names: dict[str, Any] = {"q": q}
        asker = threading.Thread(target=exec, args=(question, names))
        asker.start()
        exec(receiver, {"q": other})
        asker.join()
        assert names["answer"] == {"euros": 42}

        def answer() -> None:
            for _ in range(3):
                message = other.get(timeout=20)
                message.reply(10 * message.body)

        receiving = threading.Thread(target=answer)
        receiving.start()
        exec(handles, {"q": q})
        receiving.join()
        assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["0", "10", "20"]
        names = {"q": q, "message_id": q.put("?", model="one-way")}
        exec(later, names)
        assert not names["handle"].done()


def test_the_example_of_large_bodies_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = os.urandom(300_000)
    (tmp_path / "debian.iso").write_bytes(data)
    (example,) = _blocks(TEXTS["docs/large-bodies.md"], "python")
    assert "20 << 30" in example
    names: dict[str, Any] = {}
    exec(example.replace("20 << 30", "1 << 20"), names)  # as large a queue would take a while to make
    assert (tmp_path / "copy.iso").read_bytes() == data
    assert names["q"].stats().acks == 1
    names["q"].close()


def test_the_examples_of_retries_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    failing = []

    class OrderError(Exception): ...

    def handle(body: Any) -> None:
        failing.append(body)
        raise OrderError(body)

    first, dead, once = _blocks(TEXTS["docs/retries.md"], "python")
    create, loop, redrive = first.strip().split("\n\n")
    names: dict[str, Any] = {"penstock": penstock, "handle": handle, "OrderError": OrderError}
    exec(create, names)
    q = names["q"]
    q.put("a", max_attempts=1, type="order")
    q.put("b", max_attempts=1)
    exec(loop, names)
    assert failing == ["a", "b"] and q.qsize() == 0
    exec(redrive, names)
    assert q.qsize() == 2
    q.purge()
    q.put("a", max_attempts=1, type="order")
    exec(loop, names)
    q.put("no such customer")
    exec(dead, {**names, "message": q.get(timeout=5), "error": KeyError(7)})
    assert " max_attempts OrderError: a 1 " in capsys.readouterr().out
    assert [message.body for message in q.browse()] == ["a"]
    assert [letter.reason for letter in q.dead_letters().browse()] == ["no such customer"]
    exec(once, {"q": q, "body": "once"})
    assert q.qsize() == 2
    q.close()


def test_the_examples_of_types_keys_and_groups_run(path: Path, capsys: Any) -> None:
    with penstock.create(path, durability="relaxed") as q:
        first, consuming, second = _blocks(TEXTS["docs/selecting.md"], "python")[:3]
        names: dict[str, Any] = {"q": q}
        exec(first, names)
        assert names["message"].type == "refund"
        assert [m.key for m in names["messages"]] == ["example.com"]
        q.put(7, type="refund", key="example.net")
        exec(consuming, names)
        assert capsys.readouterr().out == "example.net 7\n"
        q.put_many([b"a", b"b"], key="example.com")
        exec(second, names)
        assert capsys.readouterr().out.startswith("example.com 2 2 ")
        assert names["messages"] == [] and q.qsize() == 0


def test_the_examples_of_managers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from penstock.manager import QueueManager
    from penstock.manager.declared import parse, perform, plan

    monkeypatch.chdir(tmp_path)
    exec(_blocks(TEXTS["docs/manager.md"], "python")[0], {})
    assert capsys.readouterr().out == "{'order': 7}\norders closed 500\n"
    declared = parse(tomllib.loads(_blocks(TEXTS["docs/manager.md"], "toml")[0]))
    with QueueManager(tmp_path / "queues") as manager:
        for change in plan(manager, declared):
            perform(manager, change)
        assert plan(manager, declared) == []
        assert manager.find("orders").options.depth == 5000


def test_the_page_about_macro_queues_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.manager import QueueManager
    from penstock.manager.declared import parse, perform, plan
    from penstock.manager.membership import CONSUMING, PRODUCING

    text = TEXTS["docs/macro.md"]
    monkeypatch.chdir(tmp_path)
    exec(_blocks(text, "python")[0], {})
    assert capsys.readouterr().out == "put out the fire\ntidy up\n"
    declared = parse(tomllib.loads(_blocks(text, "toml")[0]))
    with QueueManager(tmp_path / "others") as manager:
        for change in plan(manager, declared):
            perform(manager, change)
        assert plan(manager, declared) == []
    for policy in (*PRODUCING, *CONSUMING):
        assert f"| `{policy}`" in text


def test_the_tutorial_of_scripts_can_be_followed_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = TEXTS["docs/scripts.md"]
    names: dict[str, Any] = {"__name__": "texts"}
    for block in _blocks(text, "python"):
        exec(compile(block, "texts.py", "exec", dont_inherit=True), names)
    names["manager"].close()
    assert capsys.readouterr().out == "".join(_blocks(text, "text"))
    with penstock.open("queues/outgoing") as outgoing:
        assert [message.body for message in outgoing.browse()] == [
            "No more reminders.",
            *(f"Thank you for message {n}." for n in (1, 1, 2, 3)),
        ]


def test_the_tutorial_of_the_history_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.store.outcomes import RESULTS

    monkeypatch.chdir(tmp_path)
    text = TEXTS["docs/history.md"]
    first, frame = _blocks(text, "python")  # the second needs Spark: tests/spark/test_history.py
    exec(first, {})
    assert capsys.readouterr().out == _blocks(text, "text")[0]
    assert "history(" in frame
    named = re.findall(r"`([^`]+)`", text.split("| `result` | what happened |")[1].split("\n\n")[0])
    assert set(RESULTS.values()) <= set(named)
    fields = re.findall(r"`(\w+)`", text.split("| field | meaning |")[1].split("\n\n")[0])
    assert set(penstock.Outcome.__struct_fields__) <= set(fields)


def test_the_page_about_managers_has_every_state_and_call() -> None:
    from penstock.manager.states import ENDS, TRANSITIONS

    table = TEXTS["docs/manager.md"].split("| state | meaning | possible |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    told = {name.strip("`"): possible for name, _, possible in rows}
    assert told == {state: ", ".join(sorted(calls.keys() - ENDS)) for state, calls in TRANSITIONS.items()}


def test_the_page_about_metrics_has_every_metric(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="not installed: pip install 'penstock[metrics]'")
    from penstock.metrics import QueuesCollector

    penstock.QueueManager(tmp_path).create("orders", data_bytes=1 << 16, durability="relaxed")
    metrics = list(QueuesCollector(tmp_path, clock=lambda: 0.0).collect())
    names = {each.name + ("_total" if each.type == "counter" else "") for each in metrics}
    table = TEXTS["docs/metrics.md"].split("| metric | type | what |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(penstock_\w+)`", table)) == names
    rules = "".join(_blocks(TEXTS["docs/metrics.md"], "yaml"))
    assert set(re.findall(r"penstock_\w+", rules)) <= names


def test_the_example_of_traces_runs(path: Path) -> None:
    pytest.importorskip("opentelemetry", reason="not installed: pip install 'penstock[otel]'")
    with penstock.create(path, durability="relaxed") as q:
        q.put({"order": 7})
        exec(_blocks(TEXTS["docs/metrics.md"], "python")[0], {"q": q})
        assert q.stats().acks == 1


COMMANDS = sorted(
    {line.split("penstock ", 1)[1] for line in _blocks(README, "console")[0].splitlines() if "penstock" in line}
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_has_the_options_that_are_shown(command: str) -> None:
    pytest.importorskip("typer")
    name = command.split()[0]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", name, "--help"], env=environment, capture_output=True, text=True, check=True
    )
    for option in re.findall(r" (--[\w-]+)", command.split("|")[0]):
        assert option in shown.stdout


def _commands() -> list[str]:
    commands = re.search(r"COMMANDS.*?= \((.*?)\)", (PACKAGE / "cli/app.py").read_text(), re.DOTALL)
    assert commands
    return [command.rstrip("_") for command in re.findall(r"\w+", commands.group(1))]


def test_every_command_is_mentioned_in_the_readme() -> None:
    for command in _commands():
        assert re.search(rf"\b{command}\b", README), command


def _rows(page: str, first: str) -> dict[str, str]:
    """The table of a page whose first column has this name."""
    table = TEXTS[page].split(f"\n| {first} | ")[1].split("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {name.strip("`"): meaning for name, meaning in cells}


def test_the_page_about_the_command_line_has_every_command_in_order() -> None:
    assert list(_rows("docs/cli.md", "command")) == _commands()


def test_the_page_about_the_command_line_has_every_exit_code() -> None:
    pytest.importorskip("typer")
    from penstock.cli import exits

    assert {int(code): meaning for code, meaning in _rows("docs/cli.md", "code").items()} == exits.MEANING
    constants = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert constants == {*exits.MEANING, exits.TERMINATED, exits.HUNG_UP}


def test_the_extras_that_the_readme_names_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"cli", *re.findall(r"`(\w+)`", re.search(r"Further extras: (.*?)\.\n", README, re.DOTALL).group(1))}  # type: ignore[union-attr]
    assert named == set(project["optional-dependencies"])


@pytest.mark.parametrize("target", ["run", "test", "bench", "soak"])
def test_make_has_the_targets_that_the_pages_name(target: str) -> None:
    assert f"make {target}" in "".join(TEXTS.values())
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# ---------------------------------------------------------------- links, paths, names


def _anchors(text: str) -> set[str]:
    """As the usual renderers make them: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", _prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)]+)\)", _prose(TEXTS[page]))]


@pytest.mark.parametrize("page, link", LINKS)
def test_a_link_leads_somewhere(page: str, link: str) -> None:
    assert not link.startswith("http"), "the pages need no network"
    file, _, anchor = link.partition("#")
    target = (ROOT / page).parent / file if file else ROOT / page
    assert target.exists()
    if anchor:
        assert anchor in _anchors(target.read_text())


PATHS = sorted(
    {
        (page, quoted.partition("::")[0])
        for page in PAGES
        for quoted in _quoted(TEXTS[page])
        if re.match(r"(src|tests|tools|docs|bench|requirements|store|timequeue|cli)/[\w/.*]+(::\w+)?$", quoted)
    }
)


@pytest.mark.parametrize("page, path_name", PATHS)
def test_a_path_that_a_page_names_exists(page: str, path_name: str) -> None:
    below = PACKAGE if path_name.startswith(("store/", "timequeue/", "cli/")) else ROOT
    assert list(below.glob(path_name)), f"{page}: {path_name}"


def test_the_listing_of_modules_is_complete() -> None:
    listing = next(block for block in _blocks(TEXTS["docs/architecture.md"], "") if block.startswith("src/penstock/"))
    folder = ""
    listed = set()
    for line in listing.splitlines()[1:]:
        name = line.split()[0]
        if line.startswith("    "):
            listed.add(folder + name)
        elif name.endswith("/"):
            folder = name
        else:
            listed.add(name)
    modules = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py")}
    told = {name for name in modules if not name.startswith("cli/") and "/__init__" not in name} - {"__main__.py"}
    assert listed == told


def _sources() -> dict[str, str]:
    return {file.stem: file.read_text() for file in PACKAGE.rglob("*.py")}


NAMES = sorted(
    {
        (page, name)
        for page in ("docs/architecture.md", "docs/format.md")
        for name in _quoted(TEXTS[page])
        if re.fullmatch(r"(?!penstock\.|message\.)[A-Za-z]\w*\.(?!py$|pxd$|json$)[a-z_]\w*", name)
        and not re.fullmatch(r"data\.\d", name)
    }
)


@pytest.mark.parametrize("page, name", NAMES)
def test_a_function_that_a_page_names_exists(page: str, name: str) -> None:
    owner, function = name.split(".")
    sources = _sources()
    if owner[0].isupper():
        (text,) = [text for text in sources.values() if re.search(rf"^class {owner}\b", text, re.MULTILINE)]
        body = re.split(r"\n(?=\S)", text.split(f"class {owner}", 1)[1])[0]
        assert re.search(rf"^    def {function}\(", body, re.MULTILINE), f"{page}: {name}"
    else:
        assert re.search(rf"^(def|class) {function}\b", sources[owner], re.MULTILINE), f"{page}: {name}"


def test_every_dependency_has_its_reason() -> None:
    section = TEXTS["docs/architecture.md"].split("\n## Dependencies\n")[1]
    wanted = set()
    for file in (ROOT / "requirements").glob("*.in"):
        lines = [line for line in file.read_text().splitlines() if line and line[0] not in "#-"]
        wanted |= {re.split(r"[<>=~]", line)[0] for line in lines}
    assert {name for name in wanted if not re.search(rf"\b{name}\b", section)} == set()


def test_the_page_about_performance_has_every_benchmark_that_has_a_target() -> None:
    lines = TEXTS["docs/performance.md"].splitlines()
    listed = {line[2] for line in lines if re.match(r"\| [a-z0-9] \|", line)}
    assert listed == set(plan.LETTERS)


def test_the_readme_is_about_two_screens() -> None:
    assert len(README.splitlines()) <= 145
