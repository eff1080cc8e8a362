"""Shops, Spark and back offices, with queues between them and no server. ``make run`` shows it.

Read it in this order: ``plan`` (what goes where), ``producers``, ``shop`` (the scripts: what an order and a payment
do), ``totals`` (a windowed sum), ``driver`` (both of them on Spark), ``consumers``; then ``director``, which starts,
kills and restarts them, and ``account``, which says whether every message was applied once.
"""
