"""Whether long searches are made whole: on the compiled core always. Interpreted, which is the same source, a part of
each will do in `make test`; `.ci/run` sets ``PENSTOCK_THOROUGH`` to have all of it there too."""

import os

import penstock

IN_FULL = bool(os.environ.get("PENSTOCK_THOROUGH"))
THOROUGH = penstock.compiled or IN_FULL
# Of the steps of longer operations, at which they are killed. Those of put, get and ack are killed at each one, always.
KILLED_AT_EVERY = 1 if IN_FULL else 5
