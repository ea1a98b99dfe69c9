"""Fixtures of the tests of whole clusters."""

import pytest

from disque_trio.node.core import node as core_node
from tests.simulator.spoiled import MadeOf, Spoil


@pytest.fixture
def made_of(monkeypatch: pytest.MonkeyPatch) -> MadeOf:
    """Build nodes with a broken part: pass a subclass of the part's class."""

    def use(kind: type) -> Spoil:
        monkeypatch.setattr(core_node, kind.__bases__[0].__name__, kind)
        return lambda world: None

    return use
