"""Whether long searches are made whole. On the compiled core always; interpreted, a part of each will do in `make test`,
since it is the same source, and `.ci/run` sets ``PENSTOCK_THOROUGH`` to have all of it there too."""

import os

import penstock

THOROUGH = penstock.compiled or bool(os.environ.get("PENSTOCK_THOROUGH"))
