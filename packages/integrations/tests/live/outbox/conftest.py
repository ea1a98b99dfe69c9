"""One PostgreSQL for all tests of the outbox."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    it = Postgres()
    yield it
    it.close()
