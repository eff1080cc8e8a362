"""Owns how an object becomes the body of a message and comes back as an object. The one place that unpickles."""

from __future__ import annotations

import pickle
from typing import Any

from penstock.codec import Pickled
from penstock.errors import Misuse
from penstock.message import Message
from penstock.timequeue.puts import Entry, plain

PROTOCOL = 5  # the highest of every Python that this runs on: processes of different versions share a queue


def to_entry(item: Any, *, allow_pickle: bool) -> Entry:
    """An entry whose body comes back equal and of the same type."""
    if not _is_buffer(item):
        try:
            return plain(item)
        except Misuse:
            if not allow_pickle:
                raise
    if not allow_pickle:
        raise Misuse(f"a {type(item).__name__} can only be put as a pickle; bytes, str and JSON values need none")
    return plain(Pickled(pickle.dumps(item, protocol=PROTOCOL)))


def _is_buffer(item: Any) -> bool:
    """What a queue would take and give back as plain bytes; or a pickle already, which must not get in unasked."""
    return type(item) is not bytes and isinstance(item, bytes | bytearray | memoryview | Pickled)


def read_whole(message: Message) -> None:
    """A large body is a file, which goes when another thread marks the message done: it is read before that can be. If
    it cannot be, the message is given back."""
    try:
        message.data  # noqa: B018
    except BaseException as error:
        message.__exit__(type(error), error, error.__traceback__)
        raise


def to_item(message: Message, *, allow_pickle: bool) -> Any:
    body = message.body
    if type(body) is not Pickled:
        return body
    if not allow_pickle:
        raise Misuse(f"{message.id} is a pickle, and allow_pickle is False")
    return pickle.loads(body.data)
