"""The tables that archives write (Parquet, Delta, Iceberg), and their compaction.

Only ``bodies`` and ``reading`` need a Spark session.
"""
