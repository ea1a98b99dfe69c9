"""Counts the connections from each address, so that one cannot take all that there are."""

from disque_trio.process.addresses import network


class Origins:
    """Where connections come from, those of unix sockets aside. It holds nothing of an address that
    has none any more."""

    def __init__(self) -> None:
        self._networks: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._networks)

    def count(self, ip: str) -> int:
        """The connections from the same ``network`` as ``ip``."""
        return self._counts.get(network(ip), 0)

    def enter(self, fd: int, ip: str) -> None:
        """The connection with the descriptor ``fd`` has come from ``ip``; empty: from nowhere that
        counts."""
        if ip:
            place = network(ip)
            self._networks[fd] = place
            self._counts[place] = self._counts.get(place, 0) + 1

    def leave(self, fd: int) -> None:
        """The connection is over; nothing happens if it did not ``enter``."""
        place = self._networks.pop(fd, "")
        if place:
            left = self._counts[place] - 1
            if left:
                self._counts[place] = left
            else:
                del self._counts[place]
