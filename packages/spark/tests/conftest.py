"""Which of Spark's tests stay in one process where several share the tests."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# A Spark takes a gigabyte, and ten CPU seconds until its first queries are no slower than the next
# ones. So tests share one, and what OWN_SPARKS start is one at a time.
OWN_SPARKS = ("test_crash.py", "test_pipeline.py", "test_submit.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group what uses a Spark."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        if "spark" in item._fixtureinfo.name2fixturedefs:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.path.name in OWN_SPARKS:
            item.add_marker(pytest.mark.xdist_group("own-sparks"))
