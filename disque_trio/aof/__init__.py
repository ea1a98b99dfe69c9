"""The append-only file: its format, writing, loading, compacting and checking it."""
