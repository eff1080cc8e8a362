"""Shops, Spark and back offices, with queues between them and no server. ``make run`` shows it.

Read it in this order: ``plan`` (what goes where), ``producers``, ``driver`` (the Spark pipeline), ``consumers``; then
``director``, which starts, kills and restarts them, and ``account``, which says whether every message came through.
"""
