"""Fixtures of the unit tests."""

from tests.unit.conftest import make_bench

__all__ = ["make_bench"]
