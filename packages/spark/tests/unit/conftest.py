"""Object stores that tests share, where a server is started for the first test that needs it; and
audits."""

from pathlib import Path

import pytest

from packages.spark.tests.support.planted_lines import Key
from tests.support.missing import MISSING

if not MISSING:
    from packages.spark.tests.support.s3 import s3, s3_server
    from packages.spark.tests.support.stores import (
        azure,
        azure_server,
        google,
        google_server,
    )

    __all__ = [
        "azure",
        "azure_server",
        "google",
        "google_server",
        "s3",
        "s3_server",
    ]


@pytest.fixture(scope="module")
def whole(
    planted: tuple[Path, dict[Key, set[str]]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The audit, in one run, of the log that the module has ``planted``."""
    from disque_spark.audit.engine import LocalEngine
    from disque_spark.audit.run import audit

    output = tmp_path_factory.mktemp("whole") / "audit"
    audit(LocalEngine(2), [str(planted[0])], output)
    return output
