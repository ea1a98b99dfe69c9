"""Defaults that commands and data sources share. Imports nothing."""

DEFAULT_NODES = "127.0.0.1:7711"

# Queues whose names begin so hold leases, and no work.
LEASE_QUEUES = "spark-leases/"
PARQUET, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")  # of tables
