"""The connection of a client that another process of the server may serve better."""

import socket
from collections.abc import Callable
from typing import TypeAlias

from disque_trio.resp.request import RequestParser
from disque_trio.respserver.client import REPLY_ON, Client
from disque_trio.respserver.io.connection import Connection


class MovableConnection(Connection):
    """Like ``Connection``, but somebody looks at the requests, and may hand it over.

    Args:
        look: see ``Look``.

    Attributes:
        rest: requests that nobody looks at from now on.
    """

    __slots__ = ("_look", "rest")

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        parser: RequestParser,
        address: str,
        now: int,
        look: "Look",
    ) -> None:
        super().__init__(sock, client, parser, address, False, now)
        self.rest = 0
        self._look = look

    def receive(self, requests: list[list[bytes]]) -> int:
        received = super().receive(requests)
        if self.rest > 0:
            self.rest -= len(requests)
        elif requests:
            self.rest = self._look(self, requests)
        return received

    @property
    def at_rest(self) -> bool:
        """Whether all that its client has sent so far is done, and answered, and binds nothing to
        this process. What it has just sent does not count."""
        client = self.client
        parser = self.parser
        return not (
            client.waits_for
            or client.in_flight
            or client.in_slices
            or client.reply_queue
            or client.out
            or client.group is not None
            or client.monitor
            or client.consumes
            or client.silent
            or client.slow
            or client.close
            or client.gone
            or client.no_evict
            or client.paced
            or client.reply_mode != REPLY_ON
            or not client.authenticated
            or self.backlog
            or self.unsent
            or self.writing
            or self.reading_paused
            or self.ended
            or parser.held_back
            or not parser.takes_plain
        )


# Called with a connection and the requests that it has just read, which it takes away if the
# connection is handed over. Returns after how many further requests to call it again.
Look: TypeAlias = Callable[[MovableConnection, list[list[bytes]]], int]
