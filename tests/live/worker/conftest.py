"""A worker of an app on the shared node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import LiveNode
from tests.support.worker_rig import Rig, worker_rig


@pytest.fixture
def rig(shared_node: LiveNode, tmp_path: Path) -> Iterator[Rig]:
    """An app and a node, without a worker."""
    with worker_rig(tmp_path, shared_node.port) as rig:
        yield rig
