"""Owns what the statistics page knows beside counts: how long things took, and how often they happened lately.

Called by the holder of the queue's lock, for every message: so all of it is a few loads and raw stores. Nothing here is
journaled, and nothing is decided by it: a kill, or a transaction that is undone, may leave messages of one transaction
counted that were not delivered, or missing. Never reads the clock: times come as arguments.
"""

import math

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import layout as L
from penstock.store.words import Words

WINDOWS_US = (1_000_000, 60_000_000, 900_000_000)
ONE = L.RATE_ONE
MEAN_MOST = 2.0**63  # it has to fit a word; nobody puts so often

COUNTED = (  # what each rate is about, as sums of counts
    (L.T_PUTS,),
    (L.T_GETS,),
    (L.T_ACKS,),
    (L.T_RELEASES, L.T_EXPIRED, L.T_RETURNED),
    (L.T_DEAD_LETTERED,),
    (L.T_SYNCS,),
)
TICK_US = L.TICK_US  # again: C's where it is compiled, as is the next
RECENT_SHARE = 8  # what the latest service time is of their mean: an eighth

if not cython.compiled:  # where it is compiled, the one in measuring.pxd is a single instruction

    def _bits(value: int) -> int:
        return value.bit_length()


def bucket_of(took_us: int) -> int:
    """The bucket of a span that so long a time falls into.

    >>> [bucket_of(us) for us in (0, 1, 2, 3, 4, 5, 6, 8, 12, 1_000_000, 1 << 40, 1 << 63)]
    [0, 0, 1, 2, 3, 3, 4, 5, 6, 38, 79, 79]
    """
    if took_us < 2:
        return 0
    bits = _bits(took_us)
    if bits > L.BUCKETS // 2:
        return L.BUCKETS - 1
    return 2 * bits - 3 + ((took_us >> (bits - 2)) & 1)


class Measuring:
    """The spans and rates of one queue."""

    def __init__(self, words: Words, stats_at: int) -> None:
        self.words = words
        self.at = stats_at
        self.keeping = True  # for the benchmark, which compares with and without
        # Messages that wait to be measured together: how many, and the times that they have in common.
        self.alike = 0
        self.alike_deliver_us = 0
        self.alike_us = 0  # at which they were put or (done) delivered

    # ------------------------------------------------------------ how long

    def delivered(self, at: int, now_us: int) -> None:
        """A waiting message, whose slot is at this word, is about to be delivered."""
        if not self.keeping:
            return
        deliver_us = self.words.load(at + L.S_DELIVER_US)
        if self.words.load(at + L.S_INFO) >> L.ATTEMPTS_SHIFT != 0:
            # One that came back without a delay has been due all the time: its lateness is counted.
            if deliver_us > self.words.load(at + L.S_ATTEMPT_US):
                self._add(L.T_LATENESS, deliver_us, now_us, 1)
            return
        self.first_delivered(deliver_us, self.words.load(at + L.S_ENQUEUED_US), now_us, 1)

    def first_delivered(self, deliver_us: int, enqueued_us: int, now_us: int, count: int) -> None:
        """So many that were put at one time, for one time, are delivered for the first time."""
        if self.keeping and enqueued_us != 0:
            self._add(L.T_WAITING, enqueued_us, now_us, count)
            self._add(L.T_LATENESS, deliver_us if deliver_us > enqueued_us else enqueued_us, now_us, count)

    def begin(self) -> None:
        """Nothing waits to be measured together, whatever an error has left."""
        self.alike = 0

    def first_delivered_later(self, deliver_us: int, enqueued_us: int, now_us: int) -> None:
        """One is delivered for the first time. Measured with others of its kind, which often come one behind the other;
        ``measure_delivered`` ends this."""
        if self.alike != 0 and (deliver_us != self.alike_deliver_us or enqueued_us != self.alike_us):
            self.measure_delivered(now_us)
        self.alike_deliver_us = deliver_us
        self.alike_us = enqueued_us
        self.alike += 1

    def measure_delivered(self, now_us: int) -> None:
        if self.alike != 0:
            self.first_delivered(self.alike_deliver_us, self.alike_us, now_us, self.alike)
        self.alike = 0

    def acknowledged(self, at: int, now_us: int) -> None:
        """A message that is with a receiver, its slot at this word, is done."""
        self.done(self.words.load(at + L.S_ATTEMPT_US), now_us, 1)

    def done(self, attempt_us: int, now_us: int, count: int) -> None:
        """So many that were delivered at one time are done."""
        if not self.keeping or attempt_us == 0 or count == 0:
            return
        self._add(L.T_SERVICE, attempt_us, now_us, count)
        took_us = now_us - attempt_us if now_us > attempt_us else 0
        recent_us = self.words.load(self.at + L.T_SERVICE_RECENT_US)
        if recent_us == 0:
            recent_us = took_us
            count -= 1
        while count > 0:
            before_us = recent_us
            recent_us = ((RECENT_SHARE - 1) * before_us + took_us + RECENT_SHARE // 2) // RECENT_SHARE
            count = count - 1 if recent_us != before_us else 0
        self.words.raw(self.at + L.T_SERVICE_RECENT_US, recent_us if recent_us != 0 else 1)  # 0: nothing is known

    def done_later(self, attempt_us: int, now_us: int) -> None:
        """One is done. Measured with others of its kind; ``measure_done`` ends this."""
        if self.alike != 0 and attempt_us != self.alike_us:
            self.measure_done(now_us)
        self.alike_us = attempt_us
        self.alike += 1

    def measure_done(self, now_us: int) -> None:
        if self.alike != 0:
            self.done(self.alike_us, now_us, self.alike)
        self.alike = 0

    def _add(self, span: int, since_us: int, now_us: int, count: int) -> None:
        took_us = now_us - since_us if now_us > since_us else 0  # the wall clock may have been set back
        at = self.at + span
        bucket = at + L.SPAN_BUCKETS + bucket_of(took_us)
        self.words.raw(bucket, self.words.load(bucket) + count)
        self.words.raw(at + L.SPAN_SUM_US, (self.words.load(at + L.SPAN_SUM_US) + took_us * count) & L.MASK64)
        if took_us > self.words.load(at + L.SPAN_MAX_US):
            self.words.raw(at + L.SPAN_MAX_US, took_us)

    # ------------------------------------------------------------ how often

    def is_tick(self, now_us: int) -> bool:
        """Whether another tick has begun since the rates advanced. By the wall clock, which who puts or gets has read
        already: set forward or back, it only says so once more, or a quarter of a second late."""
        return self.keeping and now_us // TICK_US != self.words.load(self.at + L.T_RATES_TICK)

    def advance(self, now_us: int, boot_us: int) -> None:
        """Bring the rates up to this boot time, before anything more is counted."""
        self.words.raw(self.at + L.T_RATES_TICK, now_us // TICK_US)
        before_us = self.words.load(self.at + L.T_RATES_US)
        known = 0 < before_us <= boot_us  # else it is of another boot, or there is none
        steps = steps_over(boot_us - before_us if known else 0)
        for rate in range(L.RATES):
            at = self.at + L.T_RATES + rate * L.RATE_WORDS
            count = self._counted(rate)
            before = self.words.load(at + L.RATE_COUNTED)
            for window in range(L.RATE_WINDOWS):
                mean = self.words.load(at + L.RATE_MEANS + window) if known else 0
                more = count - before if known and count > before else 0
                self.words.raw(at + L.RATE_MEANS + window, stored(after(mean, more * ONE, steps[window])))
            self.words.raw(at + L.RATE_COUNTED, count)
        self.words.raw(self.at + L.T_RATES_US, boot_us)

    def _counted(self, rate: int) -> int:
        total = 0
        for word in COUNTED[rate]:
            total += self.words.load(self.at + word)
        return total


# ---------------------------------------------------------------- the arithmetic of rates

Step = tuple[float, float]


def steps_over(elapsed_us: int) -> list[Step]:
    """For each window what is left of a mean after so long, and what each event adds that was counted meanwhile.

    Whoever counts something in a new tick advances the rates first: so what was counted happened in the first tick of
    the time that has passed, evenly as far as is known, and nothing after it.
    """
    busy_us = min(elapsed_us, TICK_US)
    found = []
    for window_us in WINDOWS_US:
        left = math.exp(-elapsed_us / window_us)
        if busy_us == 0:
            found.append((left, 1e6 / window_us))
        else:
            spread = -math.expm1(-busy_us / window_us) / busy_us
            found.append((left, 1e6 * spread * math.exp(-(elapsed_us - busy_us) / window_us)))
    return found


def after(mean: float, count: float, step: Step) -> float:
    """The mean after a step in which so much was counted."""
    return mean * step[0] + count * step[1]


def stored(mean: float) -> int:
    """As a word has it. Rounded down, so that it reaches 0 in the end."""
    return int(min(mean, MEAN_MOST))
