"""The executors on Spark, and the sessions of Spark's that they run in."""
