"""Owns what OpenTelemetry knows of a message: the trace that it belongs to travels in its headers, as W3C has it. Never
starts a span by itself. Needs the extra ``otel``; the queue imports this when the program has imported OpenTelemetry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.message import Message

PARENT = "traceparent"
SYSTEM = "penstock"

_propagator = TraceContextTextMapPropagator()


def carried(headers: dict[str, str] | None) -> dict[str, str] | None:
    """Headers of a message that is put now: with the trace of the span that is active, unless there is none or the
    caller has said another. What is no headers at all is left for others to refuse."""
    if not trace.get_current_span().get_span_context().is_valid:
        return headers
    if headers is None:
        headers = {}
    elif not isinstance(headers, dict) or any(isinstance(name, str) and name.lower() == PARENT for name in headers):
        return headers
    carrier = dict(headers)
    _propagator.inject(carrier)
    return carrier


def context_of(message: Message) -> Context:
    """The context that a message was put in: without a trace if it has none, or none that can be read."""
    return _propagator.extract({name.lower(): value for name, value in message.headers.items()}, context=Context())


@contextlib.contextmanager
def handling(message: Message, name: str | None = None) -> Iterator[Span]:
    """A span of kind CONSUMER around the work on a message: a child of the span that put it. One that is active here
    already is linked. An exception is recorded, and goes on.

    >>> import penstock, penstock.tracing
    >>> q = penstock.create(path)
    >>> id = q.put("hello")
    >>> with q.get() as message, penstock.tracing.handling(message) as span:
    ...     print(message.body)
    hello
    """
    parent, here = context_of(message), trace.get_current_span().get_span_context()
    put = trace.get_current_span(parent).get_span_context()
    tracer = trace.get_tracer("penstock")
    with tracer.start_as_current_span(
        name or f"process {_queue_of(message)}",
        context=parent if put.is_valid else None,
        kind=SpanKind.CONSUMER,
        attributes=_attributes(message),
        links=[Link(here)] if put.is_valid and here.is_valid else None,
    ) as span:
        yield span


def _queue_of(message: Message) -> str:
    return message.queue.rpartition("/")[2]


def _attributes(message: Message) -> dict[str, Any]:
    """As the conventions for messaging have them."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": _queue_of(message),
        "messaging.message.id": message.id,
        "messaging.message.body.size": message.body_bytes,
    }
