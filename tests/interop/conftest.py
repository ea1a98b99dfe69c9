"""Third-party programs talk to real nodes."""

from pathlib import Path

import pytest

from tests.support.live_helpers import session_node, shared_node, talk

__all__ = ["session_node", "shared_node", "talk"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
