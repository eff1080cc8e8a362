"""Owns the lock between threads of one process: quick when it is free, and open to signals while it is waited for."""

import threading
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython


class Mutex:
    """For the compiled core, where ``threading.Lock`` would be a tenth of a put. The names are C's, see the pxd.
    Interpreted, an interrupt could come between ``acquire`` and the block: there only the lock itself will do."""

    _lock: Any

    def __init__(self) -> None:
        if cython.compiled:
            self._lock = new_lock()  # type: ignore[name-defined] # noqa: F821
        else:
            self._lock = threading.Lock()

    def acquire(self) -> None:
        if cython.compiled:
            acquire_lock(self._lock)  # type: ignore[name-defined] # noqa: F821
        else:
            self._lock.acquire()

    def release(self) -> None:
        if cython.compiled:
            release_lock(self._lock)  # type: ignore[name-defined] # noqa: F821
        else:
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __dealloc__(self) -> None:
        if cython.compiled:
            free_lock(self._lock)  # type: ignore[name-defined] # noqa: F821
