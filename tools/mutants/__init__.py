"""Counts how many small changes of the code no unit test notices: ``python -m tools.mutants``."""
