"""Penstock: a durable message queue for Python and Spark that needs no broker. A queue is a directory."""

from penstock.errors import (
    BodyTooLarge,
    Corrupt,
    ImportStopped,
    LeaseLost,
    Misuse,
    NoSuchClaim,
    NotAllowed,
    NotAQueue,
    PenstockError,
    QueueBusy,
    QueueClosed,
    QueueEmpty,
    QueueExists,
    QueueFull,
    QueueNotFound,
    ReceiverBusy,
    ReceiverLost,
    SyncFailed,
    TooManyClients,
    TooManyReceivers,
    WrongFormat,
)
from penstock.interface import Queue
from penstock.message import Message
from penstock.store.words import compiled
from penstock.timequeue import (
    Draft,
    MessageIds,
    Stats,
    TimeQueue,
    backup,
    create,
    export_messages,
    import_messages,
)
from penstock.timequeue import open_queue as open

__version__ = "0.1.0"

__all__ = [
    "BodyTooLarge",
    "Corrupt",
    "Draft",
    "ImportStopped",
    "LeaseLost",
    "Message",
    "MessageIds",
    "Misuse",
    "NoSuchClaim",
    "NotAQueue",
    "NotAllowed",
    "PenstockError",
    "Queue",
    "QueueBusy",
    "QueueClosed",
    "QueueEmpty",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "ReceiverBusy",
    "ReceiverLost",
    "Stats",
    "SyncFailed",
    "TimeQueue",
    "TooManyClients",
    "TooManyReceivers",
    "WrongFormat",
    "backup",
    "compiled",
    "create",
    "export_messages",
    "import_messages",
    "open",
]
