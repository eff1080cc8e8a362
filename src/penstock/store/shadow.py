"""What the compiled modules need of the ``cython`` module when they run interpreted and Cython is not installed."""

compiled = False
