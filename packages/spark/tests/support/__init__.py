"""Shared by Spark's tests: logs with known faults, object stores, and programs that are killed."""

from pathlib import Path

from tests.support import ROOT

HOME = Path(__file__).resolve().parents[2]  # of the distribution
PYTHONPATH = f"{ROOT}:{HOME}"
"""For processes that import the packages and what tests define."""
