"""Owns Java's archive of Spark's classes (AppCDS): with it a driver starts with half of the work. For tests only.

It is made once, in ``build/``, by a run of a small query: ``python -m tests.spark.archive <file>``. Another Java or
Spark has another. Whatever goes wrong with it, Spark starts without.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.spark.processes import PATHS, ROOT

MAKE_S_MAX = 300.0
ARCHIVE = "PENSTOCK_SPARK_ARCHIVE"  # in the environment, for drivers: a session sets JAVA_HOME, which names the file

# Quick to start: the code runs too short a time to be worth optimising.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """For a Java that shall start quickly; the archive is made first if there is none."""
    archive = Path(os.environ.get(ARCHIVE) or _place())
    os.environ[ARCHIVE] = str(archive)
    if not archive.exists():
        _make(archive)
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else QUICK_JAVA


def _place() -> Path:
    import pyspark

    from penstock.spark import java

    found = java.find()
    what = f"{found.home} {found.version} {pyspark.__version__} {pyspark.__file__} {QUICK_JAVA}"
    return ROOT / "build" / f"spark-{hashlib.sha256(what.encode()).hexdigest()[:16]}.jsa"


def _make(archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        aside = archive.with_suffix(".new")
        aside.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.spark.archive", str(aside)]
        environment = {**os.environ, "PYTHONPATH": PATHS}
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                timeout=MAKE_S_MAX,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        if aside.exists():
            aside.rename(archive)


def main(archive: str) -> None:
    """Run a query from queue to queue, so that its classes are there too. Java writes the archive when it ends."""
    import penstock
    from tests.spark.driver import pipe, start
    from tests.spark.steps import FOLDER

    os.environ.pop(FOLDER, None)  # whoever needs the archive may take notes there
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for queue in ("in", "out"):
            penstock.create(folder / queue, slots=64, data_bytes=64 << 10, durability="relaxed").close()
        with penstock.open(folder / "in") as source:
            source.put_many([b"x"] * 40)
        spark = start(folder, java=f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={archive} -Xlog:disable")
        pipe(spark, folder).awaitTermination()
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # Java's sign to end
        gateway.proc.wait(MAKE_S_MAX)


if __name__ == "__main__":
    main(sys.argv[1])
