"""A client's connection, from the view of its node."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import hiredis

from disque_trio.respserver.client import Client
from tests.simulator.draws import below

if TYPE_CHECKING:
    from tests.simulator.machine import Machine

CLIENT_DELAY = 200  # µs, at most, between a client and its node

Replied = Callable[[list[bytes], object], None]


class Session:
    """A client's connection, from the view of the machine.

    Attributes:
        pending: requests that arrived and were not served yet. asked: requests that were served and
            not answered yet.
        replied: called with a request and its reply when the client has it.
        closed: called when the connection breaks.
        pushed: called with a push message when the client has it.
    """

    def __init__(
        self, machine: "Machine", number: int, replied: Replied, closed: Callable[[], None]
    ) -> None:
        self.machine = machine
        self.client = Client(number)
        self.pending: deque[list[bytes]] = deque()
        self.asked: deque[list[bytes]] = deque()
        self.replied = replied
        self.closed = closed
        self.pushed: Callable[[list[bytes]], None] = _not_heard
        self.open = True
        self._group: list[list[bytes]] | None = None  # since MULTI
        self._reader = hiredis.Reader()
        self._sent = 0  # when the last requests arrive, virtual µs
        self._answered = 0  # and the last replies

    def send(self, *requests: list[bytes]) -> None:
        """Send requests from the client."""
        world = self.machine.world
        at = world.loop.now + below(world.rng, CLIENT_DELAY)
        at = self._sent = max(at, self._sent + 1)
        world.loop.at(at, lambda: self.machine.arrived(self, requests))

    def can_be_served(self) -> bool:
        """Whether there is a request that need not wait."""
        client = self.client
        if not self.pending or client.waits_for or client.in_slices or self.machine.halted:
            return False
        return not client.in_flight or self.machine.node.may_overlap(self.pending[0])

    def serve(self, now: int) -> None:
        """Pass the node the requests that it may serve now."""
        machine = self.machine
        while self.open and self.can_be_served():
            request = self.pending.popleft()
            self.asked.append(request)
            if machine.world.trace.on:
                words = " ".join(word.decode("latin-1") for word in request)
                machine.world.trace.add(f"{machine.index} serves c{self.client.id} {words}")
            machine.node.command(self.client, list(request), now)  # which it may use up

    def send_replies(self) -> None:
        """The turn has ended: send the client its replies, of which there are some."""
        client = self.client
        machine = self.machine
        world = machine.world
        if world.timely is not None:
            world.timely.answered(machine, client)
        self._reader.feed(b"".join(client.out))
        client.out.clear()
        at = world.loop.now + below(world.rng, CLIENT_DELAY)
        at = self._answered = max(at, self._answered + 1)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification):
                if world.trace.on:
                    world.trace.add(f"{machine.index} pushes to c{client.id} {reply!r}")
                if reply[0] == b"job":
                    world.oracle.sent(machine, reply[1:])
                world.loop.at(at, partial(self._push_arrived, reply))
                continue
            request = self.asked.popleft()
            if world.trace.on:
                name = request[0].decode()
                world.trace.add(f"{machine.index} answers c{client.id} {name} {reply!r}")
            self._judge(request, reply)
            world.loop.at(at, partial(self._arrived, request, reply))

    def _judge(self, request: list[bytes], reply: object) -> None:
        """Tell the oracle about a reply, or about each reply in the array of a group."""
        name = request[0]
        if name == b"MULTI":
            self._group = []
        elif name == b"EXEC" and self._group is not None:
            group, self._group = self._group, None
            replies = reply if isinstance(reply, list) else [reply] * len(group)
            for one, its_reply in zip(group, replies, strict=True):
                self.machine.world.oracle.replied(self.machine, one, its_reply)
        elif self._group is not None:
            self._group.append(request)  # the reply says that it is queued
        else:
            self.machine.world.oracle.replied(self.machine, request, reply)

    def _arrived(self, request: list[bytes], reply: object) -> None:
        if self.open:
            self.replied(request, reply)

    def _push_arrived(self, message: list[bytes]) -> None:
        if self.open:
            self.pushed(message)

    def close(self) -> None:
        """The client hangs up; nobody sees replies in flight."""
        self.open = False
        self.machine.hung_up(self)


def _not_heard(message: list[bytes]) -> None:
    """The client does not expect push messages."""
