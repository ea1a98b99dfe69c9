"""Interface of connections that the engine watches besides those of clients and nodes."""


class Beside:
    """A connection whose events the engine passes on."""

    def ready(self, mask: int, now: int) -> None:
        """Handle the events ``mask`` of its socket, at ``now`` (ms)."""
        raise NotImplementedError
