"""The session that ``penstock.spark.session`` makes, and the Java that comes with the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from penstock.spark import java

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

SCRIPT = """
from penstock.spark import session
spark = session(master="local[1]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
print(spark.range(7).count(), spark.conf.get("spark.sql.session.timeZone"))
try:
    spark.range(1).selectExpr("raise_error('as an exception')").collect()
except Exception as error:
    print("as an exception" in str(error))
spark.stop()
"""


def test_the_wheel_s_java_runs_spark_without_a_word_on_stderr(tmp_path: Path) -> None:
    """In a process of its own, and after an error in a task."""
    try:
        found = java.find({"PATH": ""})
    except java.NoJava as error:
        pytest.skip(str(error))
    environment = {**os.environ, "JAVA_HOME": found.home, "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=250)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("7 UTC\nTrue\n", "", 0)


def test_a_second_call_gives_the_session_that_is_there(spark: Any) -> None:
    from penstock.spark import session

    assert session().sparkContext is spark.sparkContext


def test_workers_find_spark_where_it_is_installed(spark: Any) -> None:
    """Not in a zip file of sources, which each of them would compile."""

    def where(_: int) -> tuple[str, str]:
        import py4j
        import pyspark

        return pyspark.__file__, py4j.__file__

    for file in spark.sparkContext.parallelize([0], 1).map(where).collect()[0]:
        assert Path(file).is_file(), file


def test_the_path_of_workers_keeps_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import workers

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = ["/s/python/lib/pyspark.zip", "/a b", "/s/python/lib/py4j-0.10.9.9-src.zip", "/*", "/c/pyspark.zip"]
    told = subprocess.run(
        [workers.python(), "-c", "import sys; print(sys.argv[1:], sys.path, sys.executable)", "x y"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(given)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "['x y'] ['', '/a b', '/*', '/c/pyspark.zip', " in told and told.rstrip().endswith(sys.executable)


def test_what_a_worker_s_first_tasks_find_is_not_looked_through_again() -> None:
    """And what later ones leave behind is: it may be garbage."""
    script = """
import gc
from penstock.spark import workers
found = []
for _ in range(workers.FIRST_TASKS + 3):
    kept = [[] for _ in range(1000)]
    workers.begin_task()
    found.append(gc.get_freeze_count())
*first, last = found[: workers.FIRST_TASKS]
print(last > 1000, max(found[workers.FIRST_TASKS :]) <= last)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "True True\n"


def test_the_memory_of_an_arrow_batch_is_there_for_the_next_one() -> None:
    script = """
import resource
from penstock.spark import workers
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        [bytearray(3 << 20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages()
new = pages()
kept = workers.keep_memory()
pages()
print(kept, new > 5000, pages() < 100)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    if not told.stdout.startswith("True"):
        pytest.skip("this is not glibc")
    assert told.stdout == "True True True\n"


@pytest.mark.parametrize(
    ("options", "variable", "ours"),
    [
        ("", "", True),
        ("-XX:MaxGCPauseMillis=50 -Dx=UseZGC", "", True),
        ("-Xmn1g -XX:+UseG1GC", "", False),
        ("-XX:-UseParallelGC", "", False),
        ("", "-XX:+UseZGC", False),
    ],
)
def test_java_is_given_one_collector(options: str, variable: str, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import sessions

    monkeypatch.setenv("JDK_JAVA_OPTIONS", variable)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert sessions._collector({sessions.JAVA_OPTIONS: options}) == ([sessions.COLLECTOR] if ours else [])
