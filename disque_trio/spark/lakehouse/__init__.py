"""The tables that archives write: Parquet files, Delta, Iceberg; and their upkeep.

Nothing here needs a session of Spark but ``bodies`` and ``reading``.
"""
