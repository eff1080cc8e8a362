"""Autonomous clients on one queue directory: put, get, ack, sleep until due, wake on notification."""

from penstock.store.findings import Finding
from penstock.store.recovery import check_queue
from penstock.store.repair import repair_queue, restore_queue
from penstock.timequeue.administration import Stats
from penstock.timequeue.backups import Backup, backup
from penstock.timequeue.combining import combined
from penstock.timequeue.consumers import QueueConsumer
from penstock.timequeue.exports import Export, Imported, export_messages, import_messages
from penstock.timequeue.groups import Group
from penstock.timequeue.handles import Handle
from penstock.timequeue.ids import MessageIds
from penstock.timequeue.measures import Distribution
from penstock.timequeue.opening import create, open_queue
from penstock.timequeue.puts import Draft
from penstock.timequeue.sizes import Sizes, resize_queue, upgrade_queue
from penstock.timequeue.timequeue import TimeQueue

__all__ = [
    "Backup",
    "Distribution",
    "Draft",
    "Export",
    "Finding",
    "Group",
    "Handle",
    "Imported",
    "MessageIds",
    "QueueConsumer",
    "Sizes",
    "Stats",
    "TimeQueue",
    "backup",
    "check_queue",
    "combined",
    "create",
    "export_messages",
    "import_messages",
    "open_queue",
    "repair_queue",
    "resize_queue",
    "restore_queue",
    "upgrade_queue",
]
