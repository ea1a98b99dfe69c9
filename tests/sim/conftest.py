"""Fixtures of the tests of whole clusters."""

import sys

import pytest

from tests.simulator.spoiled import MadeOf, Spoil


@pytest.fixture
def made_of(monkeypatch: pytest.MonkeyPatch) -> MadeOf:
    """Build nodes with a broken part: pass a subclass of the part's class."""

    def use(kind: type) -> Spoil:
        part = kind.__bases__[0]
        core = [module for name, module in sys.modules.items() if ".node.core." in name]
        makers = [module for module in core if getattr(module, part.__name__, None) is part]
        assert len(makers) > 1, "nobody but its own module knows the part"
        for module in makers:
            if module.__name__ != part.__module__:
                monkeypatch.setattr(module, part.__name__, kind)
        return lambda world: None

    return use
