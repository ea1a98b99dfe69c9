"""Shared by Spark's tests: logs with known faults, object stores, and programs that are killed."""

from pathlib import Path

HOME = Path(__file__).resolve().parents[2]  # of the distribution
