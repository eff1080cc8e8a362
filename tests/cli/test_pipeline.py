"""``penstock pipeline`` as far as it needs no Spark: mistakes, in a line each, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.spark.scripting.place import receiver_of
from tests.cli.conftest import Run, one_error, rows

GOOD = 'name = "a"\nroot = "."\nsource = "in"\n[[step]]\ncall = "work:work"\n[[step]]\nput = "out"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    with penstock.QueueManager(tmp_path) as manager:
        for name in ("in", "out"):
            manager.create(name, data_bytes=1 << 16, durability="relaxed")
    (tmp_path / "work.py").write_text("def work(message):\n    pass\n")
    path = tmp_path / "pipe.toml"
    path.write_text(GOOD)
    return path


def test_a_pipeline_without_mistakes_is_said_to_have_none(run: Run, file: Path) -> None:
    found = run("pipeline", "check", file, "--no-spark")
    assert found.stdout == f"{file}: no mistakes (expressions were not looked at)\n"
    assert rows(run("pipeline", "check", file, "--no-spark", "--json")) == []


def test_every_mistake_is_a_line_with_file_step_and_option(run: Run, file: Path) -> None:
    file.write_text(GOOD.replace("work:work", "work:wrok").replace('"out"', '"nowhere"'))
    found = run("pipeline", "check", file, "--no-spark", code=1)
    first, second = found.stdout.splitlines()
    assert first.startswith(f"{file}: step 1 (call): option call: work:wrok cannot be had: AttributeError")
    assert second.startswith(f"{file}: step 2 (put): option put: ") and "nowhere" in second
    (one, two) = rows(run("pipeline", "check", file, "--no-spark", "--json", code=1))
    assert (one["file"], one["step"], one["option"]) == (str(file), "step 1 (call)", "call")
    assert (two["step"], two["option"]) == ("step 2 (put)", "put")


def test_a_pipeline_with_mistakes_does_not_run_and_spark_is_not_started(run: Run, file: Path) -> None:
    file.write_text(GOOD.replace('put = "out"', 'put = "out"\nretries = 1'))
    said = one_error(run("pipeline", "run", file, code=2))
    assert said.startswith(f"penstock: {file}: step 2 (put): option retries: there is no such option")
    file.write_text(GOOD.replace('source = "in"', 'source = "none"'))
    assert "option sources: " in one_error(run("pipeline", "run", file, code=2))
    file.write_text("name =")
    assert f"{file}: not TOML: " in one_error(run("pipeline", "run", file, code=2))
    assert "there is no such file" in one_error(run("pipeline", "run", file.parent / "none", code=2))
    assert "--no-spark is for check" in one_error(run("pipeline", "run", file, "--no-spark", code=2))


def test_a_module_that_fails_on_import_is_a_mistake_and_no_trace(run: Run, file: Path) -> None:
    (file.parent / "broken.py").write_text("raise RuntimeError('not today')\n")
    file.write_text(GOOD.replace("work:work", "broken:work"))
    found = run("pipeline", "check", file, "--no-spark", code=1)
    assert "broken:work cannot be had: RuntimeError: not today" in found.stdout and found.stderr == ""


def test_a_second_run_is_refused_before_spark_is_started(run: Run, file: Path) -> None:
    file.write_text(GOOD.replace("[[step]]", "[options]\nreceiverWait = 0.2\n[[step]]", 1))
    with penstock.open(file.parent / "in") as queue, queue.receiver(receiver_of("a")):
        said = one_error(run("pipeline", "run", file, code=5))
    assert said.startswith(f"penstock: {file.parent / 'in'}: receiver 'pipeline.a' is in use: ")


def test_memory_that_java_cannot_have_is_refused_before_anything_is_started(run: Run, file: Path) -> None:
    for given, words in (
        ("300m", "--memory must be from 512 MiB to the "),
        ("4", "not 4 B"),
        ("100t", "of this machine, not 100 TiB"),
        ("much", "'much' is not a size such as"),
    ):
        assert words in one_error(run("pipeline", "run", file, "--memory", given, code=2))
