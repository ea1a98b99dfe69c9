"""Counts the connections from each address, so that no address can use them all up."""

from disque_trio.process.addresses import network


class Origins:
    """The origins of connections, except those on unix sockets. Keeps nothing about an address
    without connections."""

    def __init__(self) -> None:
        self._networks: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of connections."""
        return len(self._networks)

    def count(self, ip: str) -> int:
        """The number of connections from the same ``network`` as ``ip``."""
        return self._counts.get(network(ip), 0)

    def enter(self, fd: int, ip: str) -> None:
        """Count the connection with the descriptor ``fd`` from ``ip``; empty: not counted."""
        if ip:
            place = network(ip)
            self._networks[fd] = place
            self._counts[place] = self._counts.get(place, 0) + 1

    def leave(self, fd: int) -> None:
        """Count that the connection is over, if it did ``enter``."""
        place = self._networks.pop(fd, "")
        if place:
            left = self._counts[place] - 1
            if left:
                self._counts[place] = left
            else:
                del self._counts[place]
