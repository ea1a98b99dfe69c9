"""What the tests of whole clusters share."""

import pytest

from disque_trio.node.core import node as core_node
from tests.simulator.spoiled import MadeOf, Spoil


@pytest.fixture
def made_of(monkeypatch: pytest.MonkeyPatch) -> MadeOf:
    """Clusters of nodes with a worse part: one of a class that derives from the part's own."""

    def use(kind: type) -> Spoil:
        monkeypatch.setattr(core_node, kind.__bases__[0].__name__, kind)
        return lambda world: None

    return use
