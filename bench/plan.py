"""Which scenarios there are, how large they are in a run, and what is to be reached. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

BODY_SIZES = (200, 4096)
ONE_SIZE = {"m": (200,)}  # scenarios that are not measured with each of them

RATE = "messages/s"
SECONDS = "s"
SHARE = "of the batch"
BYTES = "bytes"

TITLES = {
    "a": "single put",
    "b": "put in batches of 1000",
    "c": "get + ack, single",
    "d": "get + ack in batches of 1000",
    "e": "2 producers → 2 consumers, single operations",
    "f": "2 producers → 2 consumers, batches of 100",
    "g": "scheduled insert at a random future time, {waiting:,} waiting",
    "h": "lateness of a timed message, receiver blocked in another process",
    "i": "wake-up of a receiver blocked in another process",
    "j": "depth: {deep:,} waiting messages against 1,000",
    "k": "memory of a process that streams {stream_gb:g} GB through a 256 MB queue",
    "l": "durable put, single, one producer",
    "m": "durable put, single, 16 producer processes",
    "n": "durable put in batches of 1000",
    "o": "restore of a queue with {restored:,} messages of 2 KiB against reading its data file once",
    "p": "Spark: stream to a sink that does nothing, {spark_rows[200]:,} rows a batch ({spark_rows[4096]:,} of 4 KiB)",
    "q": "Spark: acknowledging a batch and claiming the next, as a share of it",
    "r": "Spark: the same stream, bodies of mixed sizes",
    "s": "Spark: stream from queue to queue",
    "t": "Spark: micro-batch of one message",
    "u": "Spark: memory of the driver's Python process, {spark_backlog:,} waiting, batches of 100,000",
    "v": "consumer with prefetch 100, get + ack",
    "w": "asyncio: put, get + ack, single",
    "x": "put + get by type + ack, single, against messages without a type",
    "y": "put + get + ack, single, with exclusive keys, against messages without a key",
    "1": "put + get + ack of a rare type, {deep:,} others waiting against 1,000",
    "2": "put + get + ack, single, with 16 priorities, against messages of one",
    "3": "put + get + ack, single, through a macro queue of 4 members, against a plain queue",
    "4": "wake-up of a blocked consumer of a macro queue of 100 members, against of 1 and of 10",
    "5": "two-way round trip between two processes (relaxed), against one wake-up of a blocked receiver",
    "z": "put, get + ack with a dedup id, single",
    "6": "put, get + ack, single, with statistics kept, against without",
    "0": "get + ack, single, with a history kept, against without",
    "7": "durable put: the synchronization component against the leader scheme, by number of producers",
    "8": "a script that does nothing, against get + ack, single, of the same messages",
    "9": "scripts on Spark against plain transformWithState, {script_rows:,} messages a batch",
}
UNITS = (
    dict.fromkeys("abcdefgmnprsvwz0689", RATE)
    | dict.fromkeys("hiltxy12345", SECONDS)
    | dict.fromkeys("q", SHARE)
    | {"u": BYTES}
)
DURABLE = "lmn"
SPARK = "pqrstu9"
CLASSES = "xy12"
MACROS = "34"
LETTERS = "".join(TITLES)


@dataclass(frozen=True)
class Target:
    """Penstock's figure as a multiple of the reference's, or of one unit where there is no reference."""

    scenario: str
    reference: str | None
    factor: float
    at_least: bool = True
    body_bytes: int | None = None  # None: for every size that is measured

    def met(self, value: float) -> bool:
        return value >= self.factor if self.at_least else value <= self.factor


RAW = "raw file"
BEST = "best of the others"  # in each round; the raw file is a bound, not one of them

# For the compiled core.
TARGETS = (
    Target("a", "LMDB", 1.3),
    Target("a", "SQLite", 8),
    Target("b", "LMDB", 1.5),
    Target("b", "SQLite", 3),
    Target("c", "LMDB", 2),
    Target("d", "LMDB", 2),
    Target("e", "LMDB", 2),
    Target("e", "SQLite", 10),
    Target("f", "LMDB", 1.5),
    Target("g", "SQLite", 5),
    Target("g", "LMDB", 1),
    Target("h", None, 0.5e-3, at_least=False),
    Target("i", "pyzmq", 1, at_least=False),
    Target("l", RAW, 1.2, at_least=False),
    Target("l", "SQLite FULL", 1, at_least=False),
    Target("m", RAW, 1),
    Target("m", BEST, 1.5),
    Target("n", "LMDB", 1.3, body_bytes=200),
    Target("n", "Redis", 1.1, body_bytes=200),
    Target("n", "SQLite FULL", 2.5, body_bytes=200),
    Target("n", RAW, 0.2, body_bytes=200),
    Target("n", "LMDB", 1.5, body_bytes=4096),
    Target("n", RAW, 0.4, body_bytes=4096),
    Target("p", "parquet", 0.8),
    Target("p", "JSON", 2),
    Target("q", None, 0.1, at_least=False),
    Target("r", "equal sizes", 0.8),
    Target("s", "parquet to parquet", 0.5),
    Target("t", "rate-micro-batch", 2, at_least=False),
    Target("u", "one batch waiting", 1.25, at_least=False),  # does not grow: what the allocator keeps differs
    Target("v", "batches of 100", 0.7),
    Target("w", "blocking", 0.5),
    Target("z", "plain", 1 / 1.5),  # at most 1.5 times as long
    Target("6", "no statistics", 1 / 1.05),  # at most 1.05 times as long
    Target("0", "no history", 0.95),  # at most 5 % of it
    Target("8", "get + ack", 0.3),
    Target("x", "neither type nor key", 1.5, at_least=False),
    Target("y", "neither type nor key", 1.5, at_least=False),
    Target("1", "1,000 others", 3, at_least=False),
    Target("2", "one priority", 1.5, at_least=False),
    Target("3", "a plain queue", 1.5, at_least=False),
    Target("4", "one member", 1.5, at_least=False),  # does not grow; both are near the time of one wake-up
    Target("5", "one wake-up", 4, at_least=False),
)


def targets_for(scenario: str, body_bytes: int) -> list[Target]:
    return [t for t in TARGETS if t.scenario == scenario and t.body_bytes in (None, body_bytes)]


PRODUCERS = 16
PRODUCERS_MORE = 64
# Of many producers, each at least so much.
SHARING_TARGETS = {
    "puts a sync": 8.0,
    "share of the unluckiest producer": 0.5,
    "64 producers to 16": 1.0,
}

# The synchronization component's rate to the leader scheme's, single puts of so many producers; and the time for which
# an event loop is held up by puts of its coroutines, in seconds, at the 99th percentile.
SYNCER_PRODUCERS = 64
SYNCER_TARGET = 0.8
PAUSE_TARGET_S = 1e-3

# Scripts on Spark: their rate to that of transformWithState, with so many keys.
SCRIPT_KEYS = (1_000, 20_000)
SCRIPTS_TARGET = 3.0

# Deep against shallow, for each operation. "About as fast as an empty one" is read as at most half as much again.
DEPTH_TARGETS = {
    "put": 2.0,
    "get": 2.0,
    "ack": 2.0,
    "put, all next month": 2.0,
    "get, all next month": 2.0,
    "ack, all next month": 2.0,
    "random future insert after a write-back": 3.0,
    "random future insert": 3.0,
    "open": 1.5,
}
MEMORY_TARGET_BYTES = 200 * 10**6
RESTORE_TARGET = 3.0
RESTORE_TARGET_BYTES = 500 * 10**6


@dataclass(frozen=True)
class Sizes:
    """How many messages a scenario moves; by size of the body where that matters."""

    rounds: int
    single: int
    batched: dict[int, int]
    processes_single: int
    processes_batched: dict[int, int]
    waiting: int
    inserts: int
    timed: int
    wake_ups: int
    deep: int
    stream_gb: float
    durable_turns: int
    producing_s: float
    durable_batched: dict[int, int]
    restored: int
    spark_rows: dict[int, int]
    spark_backlog: int
    spark_turns: int
    script_rows: int


DEFAULT = Sizes(
    rounds=5,
    single=10_000,
    batched={200: 50_000, 4096: 20_000},
    processes_single=20_000,
    processes_batched={200: 100_000, 4096: 20_000},
    waiting=100_000,
    inserts=5_000,
    timed=150,
    wake_ups=200,
    deep=1_000_000,
    stream_gb=1,
    durable_turns=60,
    producing_s=1.25,
    durable_batched={200: 20_000, 4096: 10_000},
    restored=1_000_000,
    spark_rows={200: 500_000, 4096: 100_000},
    spark_backlog=2_000_000,
    spark_turns=15,
    script_rows=100_000,
)
QUICK = Sizes(
    rounds=3,
    single=3_000,
    batched={200: 10_000, 4096: 5_000},
    processes_single=6_000,
    processes_batched={200: 20_000, 4096: 10_000},
    waiting=100_000,
    inserts=1_000,
    timed=50,
    wake_ups=60,
    deep=100_000,
    stream_gb=0.5,
    durable_turns=20,
    producing_s=0.5,
    durable_batched={200: 10_000, 4096: 4_000},
    restored=125_000,
    spark_rows={200: 100_000, 4096: 20_000},
    spark_backlog=500_000,
    spark_turns=8,
    script_rows=20_000,
)

# Slow systems move fewer messages, so that a run ends; a rate is a rate.
SHARES = {("litequeue", letter): 0.1 for letter in "abce"} | {(name, "e"): 0.25 for name in ("SQLite", "SQLite NORMAL")}


def count_for(system: str, scenario: str, count: int) -> int:
    """Whole batches of 1000 or 100 stay whole: at least 1000 messages are moved."""
    return max(round(count * SHARES.get((system, scenario), 1.0)) // 1000 * 1000, 1000)
