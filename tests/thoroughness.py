"""How much of long searches is made: on the compiled core most of it, always. Interpreted, which is the same source, a
part of each will do in `make test`; `.ci/run` sets ``PENSTOCK_THOROUGH`` to have more of it."""

import os

import penstock

_ASKED = bool(os.environ.get("PENSTOCK_THOROUGH"))
THOROUGH = penstock.compiled or _ASKED
# Each kill takes tens of milliseconds. Compiled, put, get and ack are killed at each of their steps, always, and other
# short operations in full runs; of long ones every so many-th step will do, and of all of them on the interpreted core,
# which makes the same steps.
IN_FULL = penstock.compiled and _ASKED
EACH = 1 if IN_FULL else 3
KILLED_AT_EVERY = 2 if IN_FULL else 11
