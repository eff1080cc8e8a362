"""Spark looks for modules of this name: ``format("penstock")`` works without being registered."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
