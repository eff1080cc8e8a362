"""What the process that forks the workers imports once, instead of each of them."""

from bench.scenarios import asking, durable, memory, processes, timing
from bench.systems import available

__all__ = ["asking", "durable", "memory", "processes", "timing"]

available()
