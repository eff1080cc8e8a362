"""penstock completion: the scripts work in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, one_error, rows


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which ``penstock`` is the program that is tested."""
    program = tmp_path / "bin" / "penstock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    program.chmod(0o755)
    source = str(Path(penstock.__file__).parents[1])
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": source}


def complete(words: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    """What bash offers for the last of these words, the script having been sourced as its user would."""
    script = f"""
        source <(penstock completion bash)
        registered=$(complete -p penstock)
        function=$(sed -E 's/.*-F ([^ ]+) .*/\\1/' <<< "$registered")
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        "$function" penstock '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, cwd=folder, capture_output=True, text=True, timeout=END_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_values(environment: dict[str, str], tmp_path: Path) -> None:
    assert complete(["penstock", "re"], environment, tmp_path) == ["report", "redrive", "repair", "resize"]
    assert complete(["penstock", "resize", "q", "--da"], environment, tmp_path) == ["--data-bytes"]
    assert complete(["penstock", "create", "q", "--durability", ""], environment, tmp_path) == ["commit", "relaxed"]
    assert complete(["penstock", "claims", "re"], environment, tmp_path) == ["release", "receivers"]
    assert complete(["penstock", "stat", ""], environment, tmp_path) == []  # so that bash offers files


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_what_they_ask_for(environment: dict[str, str], shell: str) -> None:
    """Where the shell itself is not there: the question as its script asks it."""
    asked = {
        **environment,
        "_PENSTOCK_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "penstock re",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(["penstock"], env=asked, capture_output=True, text=True, timeout=END_S)
    assert "repair" in done.stdout and "resize" in done.stdout and "create" not in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_this_program(run: Run, shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_PENSTOCK_COMPLETE" in script and "penstock" in script
    assert rows(run("completion", shell, "--json")) == [{"shell": shell, "script": script.rstrip("\n")}]


def test_an_unknown_shell_is_a_usage_error(run: Run) -> None:
    assert "'tcsh'" in one_error(run("completion", "tcsh", code=exits.USAGE))
