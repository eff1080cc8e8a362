"""Whether tests with Spark that take minutes run too: `.ci/run` sets ``PENSTOCK_SLOW``, `make test` does not."""

import os

SLOW = bool(os.environ.get("PENSTOCK_SLOW"))
