"""Programs of others talk to real nodes."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "live"))

from live_helpers import session_node, shared_node, talk  # noqa: E402

__all__ = ["session_node", "shared_node", "talk"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
