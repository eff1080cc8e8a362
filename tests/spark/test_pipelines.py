"""Pipelines on a real Spark: what each step does, messages that fail and others that do not, tables, scripts, a stop
and going on, and the command."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from penstock.spark import Pipeline, move_contexts, run_scripts
from penstock.spark.pipelines.batches import PipelineBatches, PipelineStore
from penstock.spark.pipelines.definition import BadPipeline
from penstock.spark.pipelines.plan import Plan
from penstock.spark.scripting.logged import counts
from penstock.spark.scripting.rows import COLUMNS
from tests.spark.archive import java_options
from tests.spark.pipesteps import priced, second_time, shouted, slow, summed, visits, year, years
from tests.spark.processes import Started

pytestmark = pytest.mark.timeout(300)

SMALL: dict[str, Any] = {"depth": 2000, "data_bytes": 1 << 20, "durability": "relaxed"}


class Root:
    """Queues, and what is in them."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.manager = penstock.QueueManager(path)
        for name in names:
            self.manager.create(name, **SMALL)

    def put(self, name: str, *bodies: Any, **options: Any) -> list[str]:
        with self.manager.open(name) as queue:
            return list(queue.put_many(list(bodies), **options))

    def bodies(self, name: str) -> list[Any]:
        with self.manager.open(name) as queue:
            return [message.body for message in queue.browse()]

    def letters(self, name: str) -> dict[Any, str | None]:
        with penstock.open(self.path / f"{name}.dead") as queue:
            return {str(letter.body): letter.error for letter in queue.browse()}

    def pipeline(self, source: Any = "in", **options: Any) -> Pipeline:
        return Pipeline("test", root=self.path, source=source, **options)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "queues", "in", "out", "other")


def test_each_message_goes_its_way_and_those_that_fail_are_dead_letters_with_their_errors(
    spark: Any, root: Root, tmp_path: Path
) -> None:
    root.put("in", *({"item": f"i{n}", "count": n} for n in range(10)), key="k")
    root.put("in", "no JSON", b"\xff\xfe", {"item": "wrong", "count": "many"}, {"count": 3})
    made = (
        root.pipeline(max_attempts=1)
        .parse("item string not null, count int")
        .filter("json.count <> 1")
        .filter("10 / (json.count - 2) > -100", name="by two")
        .call(priced, time_limit=1.0)
        .route({"json.count >= 8": "out"}, otherwise="other")
        .table(tmp_path / "sold", columns=["json.item", "json.count * 2 as twice"])
    )
    assert made.check(spark) == []
    (progress,) = made.run(spark)
    assert (progress.messages, progress.put, progress.rows, progress.failed, progress.dead) == (14, 5, 5, 0, 8)
    assert progress.due == progress.waiting == 0 and progress.messages_s > 0
    assert root.bodies("out") == [{"item": f"i{n}", "count": n, "price": 2 * n} for n in (8, 9)]
    assert [body["count"] for body in root.bodies("other")] == [0, 3, 7]
    assert root.bodies("in") == []
    rows = spark.read.parquet(str(tmp_path / "sold")).orderBy("twice").collect()
    assert [(row.item, row.twice) for row in rows] == [(f"i{n}", 2 * n) for n in (0, 3, 7, 8, 9)]
    assert root.letters("in") == {
        "{'item': 'i2', 'count': 2}": "step 3 (filter 'by two'): '10 / (json.count - 2) > -100' cannot be computed for "
        "this message",
        "{'item': 'i4', 'count': 4}": "step 4 (call): ValueError: four ? is too many",
        "{'item': 'i5', 'count': 5}": "step 4 (call): priced: it ended its process, with code 3",
        "{'item': 'i6', 'count': 6}": "step 4 (call): TimeoutError: priced took longer than 1 s",
        "no JSON": "step 1 (parse): the body is not JSON of this schema: item string not null, count int",
        "b'\\xff\\xfe'": "step 1 (parse): the body is not JSON of this schema: item string not null, count int",
        "{'item': 'wrong', 'count': 'many'}": "step 1 (parse): the body is not JSON of this schema: item string not "
        "null, count int",
        "{'count': 3}": "step 1 (parse): the body has no item",
    }


def test_a_body_is_one_json_object_of_the_schema_and_nothing_else(spark: Any, root: Root) -> None:
    good = [
        '{"n":1}',
        ' {"n":1, "more": [{}]} \n',
        '{"n":1,"value":2,"_corrupt":3}',
        '{"more":' + "[" * 999 + "]" * 999 + "}",
    ]
    wrong = [
        '{"n":1} junk', '{"n":1}{"n":2}', '{"n":1}}', '{"n":1},"end":true}', '{"n":1}\0', '[{"n":1}]', "null", "1", "",
        '{"n":1', "{'n':1}", '{"n":1.5}', '{"n":01}', '{"more":' + "[" * 1000 + "]" * 1000 + "}",
    ]  # fmt: skip
    root.put("in", *good, *wrong)
    (progress,) = root.pipeline(max_attempts=1).parse("n int").put("out").run(spark)
    assert (progress.put, progress.dead) == (len(good), len(wrong))
    assert root.bodies("out") == good
    letters = root.letters("in")
    assert list(letters) == wrong
    assert set(letters.values()) == {"step 1 (parse): the body is not JSON of this schema: n int"}


def test_a_text_may_be_as_long_as_a_body(spark: Any, root: Root) -> None:
    plan = Plan(root.pipeline().parse("text string, n int").put("out").definition)
    now = datetime.now(UTC)
    rows = spark.createDataFrame([("a", 1, "in", None, None, 0, 1, now, now, None, b"", 0, False)], COLUMNS)
    long = rows.withColumn(
        "body", F.expr("concat('{\"text\":\"', repeat('x', 25000000), '\",\"n\":7}')").cast("binary")
    )
    found = plan.steps(long).select("_error", "json.n", F.length("json.text").alias("length")).collect()
    assert [tuple(row) for row in found] == [(None, 7, 25_000_000)]


def test_a_message_that_fails_comes_again_later_and_after_its_last_attempt_is_a_dead_letter(
    spark: Any, root: Root
) -> None:
    root.put("in", "poison", "later", "now", type="try", key="k")
    made = root.pipeline(max_attempts=2, retry_delay=0.7).call(second_time).put("out")
    began = time.time()
    (progress,) = made.run(spark)
    assert (progress.put, progress.failed, progress.dead) == (1, 2, 0)
    assert root.bodies("out") == ["NOW"]
    with root.manager.open("in") as queue:
        waiting = list(queue.browse())
        assert sorted(message.body for message in waiting) == ["later", "poison"]
        assert all(message.attempts == 1 and message.deliver_at.timestamp() > began + 0.7 for message in waiting)
        while queue.qsize():
            time.sleep(0.2)
            made.run(spark)
    assert root.letters("in") == {"poison": "step 1 (call): ConnectionError: attempt 2"}
    with root.manager.open("out") as queue:
        found = {message.body: message for message in queue.browse()}
    assert found.keys() == {"NOW", "LATER"}
    late = found["LATER"]
    assert (late.type, late.key, late.headers, late.priority) == ("done", "k", {"tried": "2"}, 3)


def test_the_messages_of_a_key_are_handed_over_together_in_order_and_fail_together(spark: Any, root: Root) -> None:
    for n in range(700):  # more than an Arrow batch
        root.put("in", n, key="many") if n % 7 else root.put("in", n, key=("bad", "none", "several")[n // 7 % 3])
    root.put("in", "no key")
    made = root.pipeline(max_attempts=1).group(summed, time_limit=60).put("out")
    (progress,) = made.run(spark)
    assert (progress.messages, progress.dead) == (701, 35)
    found = root.bodies("out")
    assert {"key": "many", "sum": [n for n in range(700) if n % 7]} in found
    assert sorted(each for each in found if isinstance(each, int)) == [n for n in range(0, 700, 7) if n // 7 % 3 == 2]
    assert len(found) == 34
    letters = root.letters("in")
    assert letters.pop("no key") == "step 1 (group): what it is grouped by cannot be computed, or is null"
    assert set(letters) == {str(n) for n in range(0, 700, 7) if n // 7 % 3 == 0}
    assert set(letters.values()) == {"step 1 (group): ValueError: not these"}


def test_a_time_that_python_has_not_fails_its_message_and_no_other(spark: Any, root: Root) -> None:
    times = ("2020-01-01T12:00:00Z", "0001-01-01T00:00:00Z", "12345-01-01T00:00:00Z")
    why = "what was parsed as json cannot be had in Python: OverflowError: date value out of range"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        root.put("in", *({"t": each} for each in times), key="k")
        root.pipeline(max_attempts=1).parse("t timestamp").call(year).put("out").run(spark)
        assert sorted(root.bodies("out")) == [1, 2020]
        assert root.letters("in") == {f"{{'t': '{times[2]}'}}": f"step 2 (call): {why}"}
        root.put("in", {"t": "2021-01-01"}, {"t": "0000-01-01"}, key="bad")
        root.put("in", {"t": "2022-01-01"}, key="good")
        root.pipeline(max_attempts=1).parse("t date").group(years).put("other").run(spark)
        assert root.bodies("other") == [2022]
        letters = root.letters("in")
        assert len(letters) == 3 and letters["{'t': '2021-01-01'}"] == letters["{'t': '0000-01-01'}"]
        assert str(letters["{'t': '2021-01-01'}"]).endswith(why)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_message_that_fails_in_a_later_step_has_left_nothing_in_earlier_sinks(
    spark: Any, root: Root, tmp_path: Path
) -> None:
    root.put("in", {"n": 1}, {"n": 0}, {"n": 2})
    made = (
        root.pipeline(max_attempts=1)
        .parse("n int")
        .put("out")
        .table(tmp_path / "all", format="json", columns=["json.n"], when="json.n < 2")
        .route({"json.n = 1": "other"}, unmatched="pass")
        .route({"1 / json.n > 0": "other"})
    )
    made.run(spark)
    assert root.bodies("out") == [{"n": 1}, {"n": 2}]
    assert root.bodies("other") == [{"n": 1}, {"n": 1}, {"n": 2}]
    assert [row.n for row in spark.read.json(str(tmp_path / "all")).collect()] == [1]
    assert list(root.letters("in")) == ["{'n': 0}"]


def test_several_queues_and_a_macro_queue_are_sources_and_a_sink(spark: Any, tmp_path: Path) -> None:
    root = Root(tmp_path / "queues", "one", "two", "three", "left", "right")
    root.manager.create_macro("both", ["one", "two"])
    root.manager.create_macro("sinks", ["left", "right"])
    for name in ("one", "two", "three"):
        root.put(name, *(f"{name} {n}" for n in range(20)))
    made = root.pipeline(["both", "three"], max_rows=16).filter("not decode(body, 'utf-8') like '% 7'").put("sinks")
    progress = made.run(spark)
    assert sum(each.messages for each in progress) == 60
    checkpoint = root.path / ".pipelines" / "test" / "checkpoint"
    for each in progress:
        assert sum((counts(checkpoint, each.batch) or {}).values()) == each.messages, "as Spark logs it"
    expected = sorted(f"{name} {n}" for name in ("one", "two", "three") for n in range(20) if n != 7)
    assert sorted(root.bodies("left") + root.bodies("right")) == expected
    with pytest.raises(BadPipeline, match="option sources: the pipeline was begun with both, three"):
        root.pipeline("three").put("left").start(spark)


def test_a_script_comes_last_with_contexts_and_timers_of_its_own(spark: Any, root: Root, tmp_path: Path) -> None:
    for n, body in enumerate(["a", "b", "fail", "c"]):
        root.put("in", body, key=f"visitor {n % 2}")
    made = (
        root.pipeline(max_attempts=1)
        .filter("key is not null")
        .call(shouted)
        .put("other")
        .table(tmp_path / "pages", columns=["key", "decode(body, 'utf-8') as page"])
        .script(visits)
    )
    (progress, *_) = made.run(spark)
    assert (progress.messages, progress.dead, progress.rows) == (4, 1, 3)
    with root.manager.open("in") as queue:
        for _ in range(20):
            time.sleep(0.2)
            made.run(spark)
            if not queue.qsize():
                break
    assert dict(visits.contexts(root.path)) == {
        "visitor 0": {"pages": ["A"], "gone": True},
        "visitor 1": {"pages": ["B", "C"], "gone": True},
    }
    assert sorted(root.bodies("out")) == ["visitor 0 A", "visitor 1 B", "visitor 1 C"]
    assert sorted(root.bodies("other")) == ["A", "B", "C"]
    assert sorted(row.page for row in spark.read.parquet(str(tmp_path / "pages")).collect()) == ["A", "B", "C"]
    assert root.letters("in") == {"fail": "ValueError: no"}
    with pytest.raises(penstock.Misuse, match=r"its contexts were made with input='pipeline\.test'"):
        run_scripts(visits, root.path, spark=spark)


def test_contexts_of_workers_move_to_a_pipeline(spark: Any, tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        manager.create("in", exclusive_keys=True)
        manager.create("out")
        with manager.open("in") as queue:
            for n in range(6):
                queue.put(f"a{n}", type="page", key=f"visitor {n % 3}")
            visits.run(tmp_path, until_empty=True)
            before = dict(visits.contexts(tmp_path))
            made = Pipeline("test", root=tmp_path, source="in").script(visits)
            with pytest.raises(BadPipeline, match=r"move_contexts\(app, root, pipeline='test'\)"):
                made.start(spark)
            assert move_contexts(visits, tmp_path, spark=spark, pipeline="test") == len(before) == 3
            assert dict(visits.contexts(tmp_path)) == before
            for n in range(3):
                queue.put(f"b{n}", type="page", key=f"visitor {n}")
            made.run(spark)
        assert [len(after["pages"]) for after in visits.contexts(tmp_path).values()] == [3, 3, 3]


def test_a_table_that_is_written_again_has_the_same_rows(
    spark: Any, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "called"
    root.put("in", *range(10))
    made = (
        root.pipeline()
        .call(lambda message: [message.body, called.open("a").write(".")])
        .table(tmp_path / "rows", columns=["id", "decode(body, 'utf-8') as text"])
        .put("out")
    )

    def dies(store: PipelineStore, serial: int) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(PipelineStore, "written", dies)
        with pytest.raises(StreamingQueryException, match="killed"):
            made.run(spark)
    first = sorted(row.text for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    assert len(first) == 10 and len(root.bodies("in")) == 0
    made.run(spark)
    assert sorted(row.text for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == first
    assert called.read_text() == "." * 10, "what was decided is not called again"
    assert len(root.bodies("out")) == 10


def test_a_batch_is_known_when_its_checkpoint_is_lost_and_its_root_moved_and_others_are_not(
    spark: Any, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.put("in", *range(5))

    def dies(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(PipelineBatches, "_judge", dies)
        with pytest.raises(StreamingQueryException, match="killed"):
            root.pipeline(["in", "other"]).put("out").run(spark)
    root.put("other", 5, 6)
    there = Root(root.path.rename(root.path.with_name("elsewhere")))
    shutil.rmtree(there.path / ".pipelines" / "test" / "checkpoint")
    there.pipeline(["in", "other"]).put("out").run(spark)
    assert sorted(there.bodies("out")) == list(range(7))


def test_a_sink_that_is_gone_stops_the_pipeline_and_no_message_is_to_blame(
    spark: Any, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.put("in", *range(6))
    sink, aside = root.path / "out", root.path.with_name("aside")
    made = root.pipeline(max_rows=6, max_attempts=1, wait=0.2).put("other").call(removes(sink, aside)).put("out")
    with pytest.raises(StreamingQueryException, match=f"SinkLost: {sink}: there is no such queue any more"):
        made.run(spark)
    assert not root.bodies("other"), "nothing was done"
    with root.manager.open("in") as queue:
        assert (queue.stats().claimed, queue.stats().dead_lettered) == (6, 0)
    aside.rename(sink)
    put = PipelineBatches._put

    def gone(self: PipelineBatches, *given: Any) -> None:  # later: what is put is decided
        self._targets.lose("out")
        sink.rename(aside)
        put(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(PipelineBatches, "_put", gone)
        with pytest.raises(StreamingQueryException, match=f"SinkLost: {sink}: there is no such queue any more"):
            made.run(spark)
    aside.rename(sink)
    (progress,) = made.run(spark)
    assert (progress.messages, progress.due, progress.waiting) == (6, 0, 0)
    assert root.bodies("out") == root.bodies("other") == list(range(6)) and root.bodies("in") == []


def removes(folder: Path, aside: Path) -> Any:
    def function(message: Any) -> None:
        if message.body == 0 and not aside.with_suffix(".done").exists():
            aside.with_suffix(".done").touch()
            folder.rename(aside)

    return function


def test_progress_has_the_backlog_as_it_is_when_the_batch_is_over(spark: Any, root: Root) -> None:
    root.put("in", 0, 1, 2)
    place = root.path / "in"

    def put_more(message: Any) -> None:
        with penstock.open(place) as queue:
            queue.put("more", delay=None if message.body else 3600)

    (progress,) = root.pipeline().call(put_more).put("out").run(spark)
    assert (progress.messages, progress.due, progress.waiting) == (3, 2, 3) and 0 < progress.late_s < 60


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stopped_in_the_middle_of_a_batch_it_is_finished_and_goes_on_when_started_again(
    spark: Any, root: Root, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    made = root.pipeline(max_rows=20).call(slow).put("out")
    root.put("in", *range(60))
    running = made.start(spark)
    until(lambda: called.exists() and len(called.read_text().split()) > 3)
    assert running.finish(60)
    time.sleep(0.5)  # the next batch is about to begin, or not yet: neither does
    running.stop()
    assert not running.query.isActive and running.query.exception() is None
    done = called.read_text().split()
    assert len(done) % 20 == 0 and len(root.bodies("out")) == len(done) < 60
    root.put("in", *range(60, 70))
    made.run(spark)
    assert sorted(map(int, called.read_text().split())) == list(range(70)), "each was called once"
    assert sorted(root.bodies("out")) == list(range(70))


def test_what_spark_would_refuse_is_found_before_anything_runs(spark: Any, root: Root, tmp_path: Path) -> None:
    root.put("in", "a")
    made = (
        root.pipeline()
        .parse("count int", into="order")
        .filter("order.cuont > 1")
        .filter("order.count +")
        .filter("order.count")
        .route({"order.count > 1": "out", "nothing(1)": "other"})
        .group(summed, by="who")
    )
    logged: list[Any] = []
    logging.getLogger("SQLQueryContextLogger").addFilter(lambda record: not logged.append(record))
    said = [str(mistake) for mistake in made.check(spark)]
    assert not logged, "each is told once"
    for start, words in (
        ("step 6 (group): a group comes before what is written", ""),
        ("step 2 (filter): option filter: ", "cuont"),
        ("step 3 (filter): option filter: Syntax error", ""),
        ("step 4 (filter): option filter: 'order.count' is of type int, not true or false", ""),
        ("step 5 (route): option route: ", "nothing"),
        ("step 6 (group): option by: ", "who"),
    ):
        assert any(each.startswith(start) and words in each for each in said), (start, said)
    with pytest.raises(BadPipeline, match=r"test: step 1 \(table\): option table: "):
        root.pipeline().table(tmp_path / "t", format="csv", columns=["headers"]).start(spark)
    with pytest.raises(BadPipeline, match=r"step 1 \(parse\): option parse: "):
        root.pipeline().parse("count in(").put("out").start(spark)
    with pytest.raises(BadPipeline, match=r"step 1 \(table\): option columns: .*nope"):
        root.pipeline().table(tmp_path / "t", columns=["nope"]).start(spark)
    assert root.bodies("in") == ["a"] and not (root.path / ".pipelines").exists()


def test_expressions_are_of_one_message_each(spark: Any, root: Root, tmp_path: Path) -> None:
    for wrong in ("count(*) > 1", "explode(array(true))", "row_number() over (order by number) > 1"):
        made = (
            root.pipeline()
            .filter(wrong)
            .group(summed, by=f"if({wrong}, 'a', 'b')")
            .route({wrong: "out"})
            .table(tmp_path / "t", columns=[f"{wrong} as it"])
        )
        said = [str(mistake) for mistake in made.check(spark)]
        for step, option in (
            ("1 (filter)", "filter"),
            ("2 (group)", "by"),
            ("3 (route)", "route"),
            ("4 (table)", "columns"),
        ):
            assert any(each.startswith(f"step {step}: option {option}: ") and "_live" not in each for each in said), (
                step,
                said,
            )


def test_the_command_tells_of_each_batch_and_ctrl_c_lets_it_finish(spark: Any, tmp_path: Path) -> None:
    root = Root(tmp_path / "queues", "in", "out")
    root.put("in", *range(50))
    (tmp_path / "pipe.toml").write_text(
        'name = "pipe"\nroot = "queues"\nsource = "in"\nmax_rows = 25\n'
        '[[step]]\ncall = "tests.spark.pipesteps:slow"\n[[step]]\nput = "out"\n'
    )
    command = [sys.executable, "-m", "penstock", "pipeline", "run", "pipe.toml", "--master", "local[2]", "--json"]
    driver = Started(command, tmp_path / "said", JAVA_TOOL_OPTIONS=java_options())
    called = tmp_path / "called"
    driver.wait_for(called.exists, "the first call")
    driver.process.send_signal(signal.SIGINT)
    assert driver.process.wait(60) == 130, driver.said()
    said = [json.loads(each) for each in driver.said().splitlines() if each.startswith("{")]
    assert all(each["event"] == "batch" and each["put"] == each["messages"] for each in said)
    assert len(root.bodies("out")) in (25, 50), "the batch that ran came to its end"
    assert "penstock/cli" not in driver.said(), "a trace of ours; Spark's own processes may leave one when they end"
    Pipeline.load(tmp_path / "pipe.toml").run(spark)
    assert sorted(root.bodies("out")) == list(range(50)) and root.bodies("in") == []
    assert sorted(map(int, called.read_text().split())) == list(range(50)), "each was called once"


class Shared:
    """The session of the tests, which a command does not end."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_the_tutorial_of_pipelines_can_be_followed_to_the_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: Any
) -> None:
    text = (Path(__file__).parents[2] / "docs/pipelines.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("penstock.spark.sessions.session", lambda *_, **__: Shared(spark))
    names: dict[str, Any] = {"__name__": "tutorial"}
    said = []
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "toml":
            (tmp_path / "orders.toml").write_text(block)
        elif language == "console":
            said += [run(*shlex.split(line.removeprefix("$ penstock "))).stdout for line in block.splitlines()]
        elif block.startswith("PRICES"):
            (tmp_path / "shop.py").write_text(block)
            spark.sparkContext.addPyFile(str(tmp_path / "shop.py"))
        elif language == "python":
            block = block.replace('"tables/sold"', repr(str(tmp_path / "tables/sold")))  # this Java began elsewhere
            exec(compile(block, "tutorial.py", "exec", dont_inherit=True), names)
        else:
            assert capsys.readouterr().out == block
    assert said[0] == "orders.toml: no mistakes\n" and len(said) == 3
    names["manager"].close()
