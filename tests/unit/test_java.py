"""Which Java Spark gets, and the script that starts it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from penstock.spark import java


def fake(home: Path, version: str) -> Path:
    """A Java that says its version, and else shows its arguments."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\nprintf "%s\\n" "$@"\n'
    )
    launcher.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    home, other = fake(tmp_path / "a", "21.0.1"), fake(tmp_path / "b", "17.0.15")
    both = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.find(both) == java.Java(str(home), 21, "JAVA_HOME")
    assert java.find({"PATH": str(other / "bin")}) == java.Java(str(other), 17, "PATH")


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old, good = fake(tmp_path / "old", "1.8.0_392"), fake(tmp_path / "good", "17")
    found = java.find({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert found == java.Java(str(good), 17, "PATH")
    assert java.find({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(good / "bin")}) == found


def test_no_java_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake(tmp_path / "old", "11.0.2")
    with pytest.raises(java.NoJava) as caught:
        java.find({"JAVA_HOME": str(old), "PATH": ""})
    assert f"JAVA_HOME: {old} is Java 11" in str(caught.value)
    assert "install Java 17 or newer and set JAVA_HOME" in str(caught.value)


@pytest.mark.parametrize("version, dropped", [(17, 1), (25, 2)])
def test_the_script_drops_flags_and_keeps_every_other_argument(tmp_path: Path, version: int, dropped: int) -> None:
    home = fake(tmp_path / "with space", f"{version}.0.1")
    own = java.home_for_spark(java.Java(str(home), version, "PATH"))
    arguments = [*java.DROPPED_FLAGS_24, "-cp", "a b:*", "", "-Dx='y'", "$HOME", "Main"]
    said = subprocess.run([f"{own}/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == arguments[dropped:]


def test_the_java_of_a_program_is_not_told_what_its_group_is_and_no_other_is_kept_from_it(tmp_path: Path) -> None:
    own = java.home_for_spark(java.Java(str(fake(tmp_path / "java", "17")), 17, "PATH"))
    (tmp_path / "java/bin/java").write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    for last, ignored in (("pyspark-shell", True), ("org.apache.spark.deploy.worker.Worker", False)):
        said = subprocess.run([f"{own}/bin/java", "Main", last], capture_output=True, text=True, check=True).stdout
        mask = int(said.split()[1], 16)
        assert [bool(mask & 1 << number - 1) for number in (signal.SIGHUP, signal.SIGTERM)] == [ignored, ignored]


def test_the_script_is_not_wrapped_again(tmp_path: Path) -> None:
    own = java.home_for_spark(java.Java(str(fake(tmp_path / "java", "17")), 17, "PATH"))
    again = java.find({"JAVA_HOME": own, "PATH": ""})
    assert java.home_for_spark(again) == own


def test_without_a_place_to_keep_it_the_script_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    own = Path(java.home_for_spark(java.Java(str(fake(tmp_path / "java", "17")), 17, "PATH")))
    assert (own / "bin" / "java").is_file()
    assert own.name.startswith("penstock-java-")
