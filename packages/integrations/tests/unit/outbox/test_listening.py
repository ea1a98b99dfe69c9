"""A listening connection is closed if it fails."""

from typing import Any

import pytest

from disque_integrations.outbox.listening import Notifications


class Broken:
    """A connection whose server restarts."""

    closed = autocommit = False

    def rollback(self) -> None:
        pass

    def execute(self, query: Any) -> None:
        raise ConnectionError

    def close(self) -> None:
        self.closed = True


def test_a_connection_that_fails_while_it_starts_to_listen_is_closed() -> None:
    connection = Broken()
    with pytest.raises(ConnectionError):
        Notifications(connection, "disque_outbox")
    assert connection.closed
