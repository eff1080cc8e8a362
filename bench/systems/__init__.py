"""Which systems can be measured here. A package that is not installed is named and left out."""

from __future__ import annotations

from importlib import import_module

from bench.systems.interface import System

# module, class, the package that it needs
KNOWN = (
    ("penstock_queue", "Penstock", "penstock"),
    ("lmdb_queue", "Lmdb", "lmdb"),
    ("sqlite_queue", "Sqlite", "sqlite3"),
    ("sqlite_queue", "SqliteNormal", "sqlite3"),
    ("lite_queue", "Litequeue", "litequeue"),
    ("raw_file", "RawFile", ""),
    ("zeromq", "ZeroMq", "pyzmq"),
    ("mp_queue", "MpQueue", ""),
    ("penstock_queue", "PenstockCommit", "penstock"),
    ("raw_file", "RawFileSync", ""),
    ("lmdb_queue", "LmdbSync", "lmdb"),
    ("sqlite_queue", "SqliteFull", "sqlite3"),
    ("lite_queue", "LitequeueFull", "litequeue"),
    ("redis_server", "Redis", "redis-server"),
)


def available() -> tuple[list[type[System]], list[str]]:
    """The systems that can be used, and the names of the packages that are missing for the others."""
    found: list[type[System]] = []
    missing: list[str] = []
    for module, name, package in KNOWN:
        try:
            found.append(getattr(import_module(f"bench.systems.{module}"), name))
        except ImportError:
            if package == "penstock":
                raise
            if package not in missing:
                missing.append(package)
    return found, missing
