"""Owns the lock between threads of one process for the compiled core: quick when it is free, and open to signals while
it is waited for. The interpreted core has ``threading.Lock``: there an interrupt could come between ``acquire`` and the
block that it guards, and only the lock itself knows how to prevent that.
"""

from typing import Any


class Mutex:
    """The names are C's, see mutex.pxd."""

    _lock: Any

    def __init__(self) -> None:
        self._lock = new_lock()  # type: ignore[name-defined] # noqa: F821

    def acquire(self) -> None:
        acquire_lock(self._lock)  # type: ignore[name-defined] # noqa: F821

    def acquire_at_once(self) -> bool:
        """False if another thread has it."""
        return bool(try_lock(self._lock))  # type: ignore[name-defined] # noqa: F821

    def release(self) -> None:
        release_lock(self._lock)  # type: ignore[name-defined] # noqa: F821

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __dealloc__(self) -> None:
        free_lock(self._lock)  # type: ignore[name-defined] # noqa: F821
