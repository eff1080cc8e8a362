"""What the process that forks the workers imports once, instead of each of them."""

from bench.scenarios import memory, processes, timing
from bench.systems import available

__all__ = ["memory", "processes", "timing"]

available()
