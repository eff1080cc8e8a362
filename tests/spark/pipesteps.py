"""Functions and scripts that pipelines of the tests call: in a module that Spark's processes can import."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.scripts import App, Context, ScriptMessage


def priced(message: Any) -> Any:
    count = message.parsed["json"]["count"]
    if count == 4:
        raise ValueError("four \udc80 is too many")
    if count == 5:
        os._exit(3)
    if count == 6:
        time.sleep(60)
    return {**message.body, "price": 2 * count}


def second_time(message: Any) -> Any:
    if message.body == "poison" or (message.body == "later" and message.attempts == 1):
        raise ConnectionError(f"attempt {message.attempts}")
    return penstock.Draft(body=message.body.upper(), type="done", headers={"tried": str(message.attempts)}, priority=3)


def summed(key: str, messages: list[Any]) -> Any:
    if key == "bad":
        raise ValueError("not these")
    if key == "none":
        return None
    if key == "several":
        return [message.body for message in messages]
    return penstock.Draft(body={"key": key, "sum": [message.body for message in messages]}, key="sum")


visits = App("visits", input="in")


@visits.script("page")
def page(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    if message.body == "FAIL":
        raise ValueError("no")
    context.state["pages"] = [*context.state.get("pages", []), message.body]
    context.put(f"{context.key} {message.body}", to="out", key=None)
    context.after(0.3, "gone")


@visits.script("gone")
def gone(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    context.state["gone"] = True


def shouted(message: Any) -> Any:
    return penstock.Draft(body=message.body.upper(), type="page")


def year(message: Any) -> Any:
    return message.parsed["json"]["t"].year


def years(key: str, messages: list[Any]) -> Any:
    return [year(message) for message in messages]


def slow(message: Any) -> None:
    """It leaves a trace beside the folder of the queues."""
    with Path(message.queue).parent.with_name("called").open("a") as file:
        file.write(f"{message.body}\n")
    time.sleep(0.05)


def large(message: Any) -> Any:
    """Until there is a file beside the folder of the queues."""
    return message.body if Path(message.queue).parent.with_name("small").exists() else bytes(8 << 20)


def flaky(message: Any) -> Any:
    """For messages that are numbered: some never work, some do at their second attempt."""
    if message.body % 10 == 7 or (message.body % 10 == 3 and message.attempts == 1):
        raise ValueError(f"{message.body}, attempt {message.attempts}")


counts = App("counts", input="in")


@counts.script("n")
def counted(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    if message.body % 10 == 9:
        raise ValueError("never")
    context.state["seen"] = [*context.state.get("seen", []), message.body]
    context.put(message.body, to="counted")
