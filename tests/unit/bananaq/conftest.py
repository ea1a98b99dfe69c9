"""The store of the tests that each kind of store passes."""

import pytest

from tests.support.store_semantics import Drive, EmbeddedDrive


@pytest.fixture
def store() -> Drive:
    """An empty embedded store."""
    return EmbeddedDrive()
