"""Scripts on Spark: an app of ``penstock.scripts``, unchanged, as a streaming query. See docs/scripts-on-spark.md."""
