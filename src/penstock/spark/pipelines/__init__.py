"""Pipelines: source queues, steps, and sink queues and tables, as one streaming query. See docs/pipelines.md."""
