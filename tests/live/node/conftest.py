"""Servers of several processes, and a supervisor of nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.several import several
from tests.support.supervisor import Supervisor

__all__ = ["several"]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Starts nodes in ``tmp_path``."""
    it = Supervisor(tmp_path, str(tmp_path / "notify"))
    yield it
    it.close()
