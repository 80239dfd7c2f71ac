"""The executors on Spark: tasks that stay, and jobs."""
