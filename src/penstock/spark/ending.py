"""Owns what Spark or its Java fails by, as an error of one line; and the Java of a command, started with a session and
ended with it. Never says what is done about it.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.errors import PenstockError
from penstock.spark.sessions import JAVA_OPTIONS, session

END_S_MAX = 5.0  # for a Java that has closed its connections to be gone
NO_STACK = "-Dpenstock.log=off"  # see log4j2.properties
OUT_OF_MEMORY = (
    "java.lang.OutOfMemoryError",
    "org.apache.arrow.memory.OutOfMemoryException",
    "TaskResultLost",  # on one machine: what it came to was not kept
)
CAUSED, TRACEBACK = "Caused by: ", "Traceback (most recent call last):"
OUT_OF_MEMORY_CODE = 52  # of a Java that Spark ends
REMEDY = "give it more with --memory (spark.driver.memory), or make batches smaller (max_rows, maxBytes)"

Result = TypeVar("Result")


class SparkFailed(PenstockError):
    """What stopped it, in a line."""


class RunningJava:
    """One, with its session."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self._process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)

    def told(self, call: Callable[[], Result]) -> Result:
        """What it comes to; an error of Spark's or of the way to Java in one line."""
        try:
            return call()
        except PenstockError:
            raise
        except (PySparkException, Py4JError, EOFError, OSError) as error:
            raise SparkFailed(self._line(error)) from error

    def _line(self, error: Exception) -> str:
        code = None if isinstance(error, StreamingQueryException) else self._ended()
        return reason_of(error) if code is None else ended(code)

    def _ended(self) -> int | None:
        """Its exit code, if it has ended."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(END_S_MAX)
        return None

    def stop(self) -> None:
        if self._process is None or self._process.poll() is None:
            with contextlib.suppress(SparkFailed):  # it ends meanwhile
                self.told(self.spark.stop)


def ended(code: int) -> str:
    """Of a Java that is gone.

    >>> ended(-9)[:25], ended(52)[:33]
    ('Java has ended (signal 9)', 'Java has ended for want of memory')
    """
    if code == OUT_OF_MEMORY_CODE:
        return f"Java has ended for want of memory: {REMEDY}"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"Java has ended ({how}): if it was for want of memory, {REMEDY}; else it goes on when it is started again"


def reason_of(error: Exception) -> str:
    """What a user can use of it: the last error of ours, else what it began with.

    >>> reason_of(Exception("Failed: Traceback (most recent call last):\\n  File ...\\nKeyError: 'x'\\n and so on"))
    "KeyError: 'x'"
    """
    said = str(error)
    ours = [each for each in said.splitlines() if each.startswith("penstock.")]
    if ours:
        return ours[-1].partition(": ")[2]
    if any(each in said for each in OUT_OF_MEMORY):
        return f"Java's memory is not enough: {REMEDY}"
    lines = said.splitlines() or [type(error).__name__]
    caused = [each for each in lines if each.startswith(CAUSED)]
    if caused:
        return caused[-1].removeprefix(CAUSED)
    behind = said.rpartition(TRACEBACK)[2].splitlines() if TRACEBACK in said else []
    return next((each for each in behind if each and not each[0].isspace()), lines[0])


@contextlib.contextmanager
def running_java(name: str, *, master: str, settings: dict[str, str]) -> Iterator[RunningJava]:
    """A session for the block. What it fails by is said once, and without stacks."""
    logging.getLogger().addFilter(_is_no_stack)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        java = RunningJava(session(name, master=master, **{JAVA_OPTIONS: NO_STACK}, **settings))
    except PySparkException as error:
        raise SparkFailed(f"Spark does not start: {reason_of(error)}") from error
    # Who waits there for what Java adds up hears first that it is gone, and would print the stack of that.
    java.spark.sparkContext._accumulatorServer.handle_error = _say_nothing
    try:
        yield java
    finally:
        java.stop()


def _say_nothing(_request: object, _address: object) -> None:
    """Of a connection to Java that is gone, as below."""


def _is_no_stack(record: logging.LogRecord) -> bool:
    """Of a connection to Java that is gone: it is an error as well."""
    return "py4j" not in record.pathname and "pyspark" not in record.pathname
