"""Object stores that tests share; a server is started for the first test that needs it.

Without the extra ``spark``, files that cannot be imported are skipped, and the others run.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

MISSING = [name for name in ("pyspark", "pandas", "pyarrow") if find_spec(name) is None]

if not MISSING:
    from tests.support.s3 import s3, s3_server
    from tests.support.stores import (
        azure,
        azure_server,
        google,
        google_server,
        hadoop,
        hadoop_server,
    )

    __all__ = [
        "azure",
        "azure_server",
        "google",
        "google_server",
        "hadoop",
        "hadoop_server",
        "s3",
        "s3_server",
    ]


class SparkModule(pytest.Module):
    """A file of tests that is skipped if it needs a library that is not installed."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        try:
            yield from super().collect()
        except self.CollectError as error:
            cause = error.__cause__
            if not isinstance(cause, ModuleNotFoundError) or cause.name.startswith("disque_trio"):
                raise
            pytest.skip(f"without {', '.join(MISSING)}", allow_module_level=True)


if MISSING:

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
        return SparkModule.from_parent(parent, path=module_path)
