"""Defaults that commands and data sources share. Imports nothing."""

DEFAULT_NODES = "127.0.0.1:7711"
"""The nodes that are meant where none are named."""

# Queues whose names begin with this hold leases, not work.
LEASE_QUEUES = "spark-leases/"
NO_DIRECTORY = (
    "leases are in Disque now, not in a directory: let the old release finish with its directory"
    " first, or its jobs come again after their RETRY"
)
PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")  # table formats
AUTO, LOCAL, SPARK = ENGINES = ("auto", "local", "spark")  # where an audit is done

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"  # modes of the sink
DAY = 86_400  # s
