"""OpenTelemetry with the real SDK: a trace travels in the headers of messages, and who handles them goes on with it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conftest import Queues

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry is not installed: requirements/console.txt")

SOURCE = str(Path(penstock.__file__).parents[1])
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    found = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)
    return found


@pytest.fixture
def spans(exporter: Any) -> Iterator[Any]:
    exporter.clear()
    yield exporter.get_finished_spans
    exporter.clear()


@pytest.fixture
def tracer(exporter: Any) -> Any:
    from opentelemetry import trace

    return trace.get_tracer("tests")


def parent_of(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def test_every_way_to_put_takes_the_trace_along(queue: Queues, tracer: Any) -> None:
    q = queue()

    async def puts() -> None:
        await q.aput("aput")
        await q.aput("aput with options", type="t")
        await q.aput_many(["aput_many"])
        await q.aput_file(io.BytesIO(b"aput_file"))

    with tracer.start_as_current_span("order") as span:
        q.put("put")
        q.put_many(["put_many", penstock.Draft(body="draft", headers={"own": "one"})])
        q.put_file(io.BytesIO(b"put_file"))
        q.put_once("publisher", 1, ["put_once"])
        asyncio.run(puts())
        expected = parent_of(span)
    messages = q.get_many(100)
    assert len(messages) == 9
    assert {message.headers["traceparent"] for message in messages} == {expected}
    assert messages[2].headers == {"own": "one", "traceparent": expected}


def test_without_an_active_span_nothing_is_added(queue: Queues, tracer: Any) -> None:
    q = queue()
    q.put("plain")
    q.put("with headers", headers={"a": "b"})
    assert [message.headers for message in q.get_many(2)] == [{}, {"a": "b"}]


def test_what_the_caller_says_stays_as_it_is(queue: Queues, tracer: Any) -> None:
    q = queue()
    mine = {"Traceparent": TRACE}
    with tracer.start_as_current_span("order"):
        q.put("forwarded", headers=mine)
        with pytest.raises(penstock.Misuse, match="headers must be a dict"):
            q.put("wrong", headers=["no"])  # type: ignore[arg-type]
    assert q.get().headers == mine == {"Traceparent": TRACE}


def test_a_batch_of_callers_headers_is_not_changed(queue: Queues, tracer: Any) -> None:
    q = queue()
    mine = {"a": "b"}
    with tracer.start_as_current_span("order"):
        q.put("one", headers=mine)
    assert mine == {"a": "b"}


def test_handling_goes_on_with_the_trace_of_the_put(queue: Queues, tracer: Any, spans: Any) -> None:
    from opentelemetry.trace import SpanKind

    from penstock.tracing import handling

    q = queue()
    with tracer.start_as_current_span("order") as put:
        id = q.put("hello")
    with tracer.start_as_current_span("loop") as loop, q.get() as message, handling(message):
        tracer.start_span("inside").end()
    inside, work = (next(each for each in spans() if each.name == name) for name in ("inside", "process queue"))
    assert work.kind is SpanKind.CONSUMER
    assert work.parent == put.get_span_context() or work.parent.span_id == put.get_span_context().span_id
    assert work.context.trace_id == inside.context.trace_id == put.get_span_context().trace_id
    assert inside.parent.span_id == work.context.span_id
    assert [link.context.span_id for link in work.links] == [loop.get_span_context().span_id]
    assert work.attributes["messaging.message.id"] == id
    assert work.attributes["messaging.destination.name"] == "queue"


def test_a_message_without_a_trace_or_with_a_broken_one_starts_a_new_one(
    queue: Queues, tracer: Any, spans: Any
) -> None:
    from opentelemetry import trace

    from penstock.tracing import context_of, handling

    q = queue()
    q.put("none")
    q.put("broken", headers={"traceparent": "00-nonsense"})
    for message in q.get_many(2):
        assert not trace.get_current_span(context_of(message)).get_span_context().is_valid
        with message, handling(message, "mine"):
            pass
    assert [(span.name, span.parent) for span in spans()] == [("mine", None), ("mine", None)]


def test_an_error_is_recorded_and_goes_on(queue: Queues, tracer: Any, spans: Any) -> None:
    from penstock.tracing import handling

    q = queue()
    q.put("poison")
    message = q.get()
    with pytest.raises(ValueError, match="bad"), handling(message):
        raise ValueError("bad")
    (span,) = spans()
    assert not span.status.is_ok
    assert span.events[0].attributes["exception.type"] == "ValueError"
    message.ack()


HANDLER = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
def handle(message):
    context = trace.get_current_span().get_span_context()
    with open("seen", "a") as file:
        file.write(json.dumps([os.getpid(), f"{context.trace_id:032x}", trace.get_current_span().name]))
"""


def test_penstock_work_goes_on_with_a_trace_of_another_process(queue: Queues, tracer: Any, tmp_path: Path) -> None:
    q = queue()
    with tracer.start_as_current_span("order") as span:
        q.put("hello")
    (tmp_path / "jobs.py").write_text(HANDLER)
    subprocess.run(
        [sys.executable, "-m", "penstock", "work", str(q.path), "jobs:handle", "--once"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=True,
        timeout=60,
    )
    pid, trace_id, name = json.loads((tmp_path / "seen").read_text())
    assert pid != os.getpid()
    assert (trace_id, name) == (f"{span.get_span_context().trace_id:032x}", "process queue")
    assert q.stats().acks == 1


def test_a_program_without_opentelemetry_does_not_import_it(tmp_path: Path) -> None:
    program = (
        "import sys, penstock\n"
        f"q = penstock.create({str(tmp_path / 'q')!r}, durability='relaxed')\n"
        "q.put('hello', headers={'a': 'b'})\n"
        "assert q.get().headers == {'a': 'b'}\n"
        "assert not any(name.startswith(('opentelemetry', 'penstock.tracing')) for name in sys.modules)\n"
        "assert not any(name in sys.modules for name in ('starlette', 'uvicorn', 'prometheus_client'))\n"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": SOURCE}, check=True, timeout=60)
