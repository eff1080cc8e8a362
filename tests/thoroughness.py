"""Whether long searches are made whole: on the compiled core always. Interpreted, which is the same source, a part of
each will do in `make test`; `.ci/run` sets ``PENSTOCK_THOROUGH`` to have all of it there too."""

import os

import penstock

THOROUGH = penstock.compiled or bool(os.environ.get("PENSTOCK_THOROUGH"))
