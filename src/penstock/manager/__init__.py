"""Queues by name: a manager looks after all queues below a folder."""

from penstock.manager.declared import Change, Declared, read_declared
from penstock.manager.directory import Directory, Entry, FileDirectory
from penstock.manager.macro import MacroQueue
from penstock.manager.managed import ManagedQueue
from penstock.manager.manager import QueueInfo, QueueManager
from penstock.manager.membership import MacroOptions, Member
from penstock.manager.options import QueueOptions
from penstock.manager.permissions import Right
from penstock.manager.states import State

__all__ = [
    "Change",
    "Declared",
    "Directory",
    "Entry",
    "FileDirectory",
    "MacroOptions",
    "MacroQueue",
    "ManagedQueue",
    "Member",
    "QueueInfo",
    "QueueManager",
    "QueueOptions",
    "Right",
    "State",
    "read_declared",
]
