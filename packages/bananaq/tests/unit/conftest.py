"""The store for the tests that every kind of store passes."""

import pytest

from packages.bananaq.tests.support.store_semantics import Drive, EmbeddedDrive


@pytest.fixture
def store() -> Drive:
    """Return an empty embedded store."""
    return EmbeddedDrive()
