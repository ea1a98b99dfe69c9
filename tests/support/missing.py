"""Skips tests that need packages which the environment of ``make check`` does not have."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["MISSING"]

OF_EXTRAS = """
botocore coredis cryptography deltalake django fsspec mkdocs numpy pandas psycopg py4j pyarrow
pyiceberg pyspark
"""
MISSING = [name for name in OF_EXTRAS.split() if find_spec(name) is None]


def pytest_report_header() -> str | None:
    """Say what is skipped."""
    if not MISSING:
        return None
    return f"tests that need {', '.join(MISSING)} are skipped: make test runs them"


def missing(error: BaseException | None) -> str | None:
    """The package for lack of which an import failed; None if that is not the cause."""
    while error is not None:
        name = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and name in MISSING:
            return name
        error = error.__cause__ or error.__context__
    return None


class Module(pytest.Module):
    """A file of tests that is skipped if it cannot be imported without a missing package."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        try:
            yield from super().collect()
        except self.CollectError as error:
            if name := missing(error):
                pytest.skip(f"{name} is not installed", allow_module_level=True)
            raise


if MISSING:

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
        return Module.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call() -> Iterator[None]:
        try:
            return (yield)  # type: ignore[return-value]
        except Exception as error:
            if name := missing(error):
                pytest.skip(f"{name} is not installed")
            raise
