"""Looks up the IP addresses of hosts by name, in threads, while clients are served."""

import math
import socket
from collections.abc import Callable

import trio

from disque_trio.process.addresses import told_ip
from disque_trio.respserver.io.engine import Engine

LONGEST = 10.0  # s that an answer may take
AT_ONCE = 4  # threads, apart from those for the disk
MOST_ADDRESSES = 8


class NameLookups:
    """Looks up names for the state machine."""

    def __init__(self) -> None:
        self._wishes, self._wanted = trio.open_memory_channel[
            tuple[str, Callable[[list[str]], None]]
        ](math.inf)
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    def look_up(self, name: str, found: Callable[[list[str]], None]) -> None:
        """Call ``found`` between two turns with at most ``MOST_ADDRESSES`` addresses of the host
        ``name``: none if there is no such host, or no server answers."""
        self._wishes.send_nowait((name, found))

    async def run(self, engine: Engine) -> None:
        """Look up the requested names until cancelled."""
        async with trio.open_nursery() as nursery:
            async for name, found in self._wanted:
                nursery.start_soon(self._look_up, name, found, engine)

    async def _look_up(self, name: str, found: Callable[[list[str]], None], engine: Engine) -> None:
        addresses: list[str] = []
        with trio.move_on_after(LONGEST):
            addresses = await trio.to_thread.run_sync(
                _addresses, name, abandon_on_cancel=True, limiter=self._limiter
            )
        if not engine.halted:
            found(addresses)
            engine.after_node()


def _addresses(name: str) -> list[str]:
    """The addresses of the host ``name`` that can be connected to, the best one first."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    found = dict.fromkeys(told_ip(str(address[0])) for *_, address in answers)
    found.pop("", None)
    return list(found)[:MOST_ADDRESSES]
