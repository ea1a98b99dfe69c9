"""Processes jobs on Spark's executors, with a function of the user's."""
