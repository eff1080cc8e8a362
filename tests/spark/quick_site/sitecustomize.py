"""For the Python processes of Spark, in tests: pyspark as it is installed.

Spark puts a zip of it first on the path, which Python compiles anew in each of some 16 processes that a query starts:
half a second of work each.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("pyspark.zip", "-src.zip"))]
