"""Owns the question whether a kernel's pages are those that its last user left, or must be restored first (S7).

Only compares words of the header with what the system says of the file. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.store import layout as L
from penstock.store.files import LocalFiles

IDENTITY = range(L.H_BOOT_ID, L.H_MOUNT + 1)
COPIED = "copied"
UNNOTED = "nobody has noted whose kernel it is"  # a backup before its first open: it may be moved and keeps its UUID
FAILED = "a sync has failed"


def needed(files: LocalFiles, words: Sequence[int] | memoryview) -> str | None:
    """Why the kernel must be restored before it is used, in words; None if it can be trusted.

    ``words`` are the kernel's. To be asked under the lock and with no client alive: a living one's kernel is right.
    """
    if words[L.H_REPAIRING]:
        return "a repair was cut short"
    reason = changed(files, words)
    if reason:
        return reason
    return FAILED if words[L.H_SYNC_FAILED] else None


def changed(files: LocalFiles, words: Sequence[int] | memoryview) -> str | None:
    """What makes the kernel's pages others than those that its last user left."""
    now = dict(zip(IDENTITY, files.identity(), strict=True))
    if all(words[word] == 0 for word in IDENTITY):
        return UNNOTED
    if any(words[word] != 0 and words[word] != now[word] for word in (L.H_INODE, L.H_BIRTH_US)):
        return COPIED
    for word, what in (
        (L.H_BOOT_ID, "another boot"),
        (L.H_BOOT_ID + 1, "another boot"),
        (L.H_DEVICE, "another disk"),
        (L.H_MOUNT, "mounted anew"),
    ):
        if words[word] != now[word]:
            return what
    return None if all(words[word] == now[word] for word in IDENTITY) else "it was never noted whole"
