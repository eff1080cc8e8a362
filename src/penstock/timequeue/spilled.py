"""Owns bodies that are files, as those read them who have the message. Never reads one before it is asked to, and never
takes another message's: a name in ``bodies/`` is given once.
"""

from __future__ import annotations

import io
import os

from penstock.errors import BodyGone, Corrupt, QueueClosed
from penstock.message import DONE, Message
from penstock.store import layout as L
from penstock.store.bodyfiles import BodyReader
from penstock.store.files import body_name
from penstock.timequeue.clients import Client

BUFFER_BYTES = 1 << 18
LIVE = (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


class Spilled:
    """The file of one message's body."""

    __slots__ = ("_check", "_client", "_name", "length")

    def __init__(self, client: Client, number: int, slot: int, reference: bytes) -> None:
        self._client = client
        self._name = body_name(number, slot)
        self.length, self._check = L.SPILL.unpack(reference)

    def fault(self) -> str | None:
        """What is wrong with it, without reading it."""
        files = self._client.files
        try:
            found = files.body_bytes(self._name)
        except FileNotFoundError:
            return f"no file {files.body_path(self._name)}"
        if found != self.length:
            return f"a damaged file {files.body_path(self._name)}: {found} bytes instead of {self.length}"
        return None

    def read(self, message: Message) -> bytes:
        """All of it."""
        with self._reader(message) as reader:
            return reader.readall()

    def open(self, message: Message) -> io.BufferedReader:
        return io.BufferedReader(self._reader(message), BUFFER_BYTES)

    def _reader(self, message: Message) -> BodyReader:
        client = self._client
        if client.closed:
            raise QueueClosed(f"{client.name}: this queue object was closed before the body of {message.id} was read")
        if message.state == DONE:
            raise BodyGone(client.name, message.id, "the message was acknowledged or given back before")
        path = client.files.body_path(self._name)
        try:
            fd = client.files.open_body(self._name)
        except FileNotFoundError:
            if self._is_there(message):
                raise Corrupt(path, offset=0, expected=f"a body of {self.length} bytes", found="no file") from None
            raise BodyGone(client.name, message.id, "the message has left the queue") from None
        found = os.fstat(fd).st_size
        if found != self.length:
            os.close(fd)
            offset = min(found, self.length)
            raise Corrupt(path, offset=offset, expected=f"a body of {self.length} bytes", found=f"{found} bytes")
        return BodyReader(fd, path, length=self.length, check=self._check)

    def _is_there(self, message: Message) -> bool:
        kernel = self._client.kernel
        return kernel.number(message.slot) == message.number and kernel.state(message.slot) in LIVE
