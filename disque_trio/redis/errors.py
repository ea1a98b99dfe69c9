"""The errors of a Redis, and of connections to it."""

from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import ReplyError

# Codes that add nothing to the rest of the reply.
_SILENT = frozenset({
    "ASK", "BUSYGROUP", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "LOADING", "MOVED",
    "NOAUTH", "NOGROUP", "NOKEY", "NOPERM", "NOPROTO", "NOSCRIPT", "NOTBUSY", "READONLY",
    "TRYAGAIN", "UNBLOCKED", "WRONGPASS", "WRONGTYPE",
})  # fmt: skip


class RedisError(ReplyError):
    """An error reply. ``text`` is all of it; ``str`` leaves out codes that add nothing."""

    def __init__(self, text: str) -> None:
        code, _, message = text.partition(" ")
        super().__init__(code, message)
        self.text = text

    def __str__(self) -> str:
        return self.message if self.code in _SILENT else self.text


class RedisUnavailable(Exception):
    """There is no connection, or it broke.

    Attributes:
        maybe_executed: whether that happened after the command had been sent.
        kind: "down": there is no connection; "hung": Redis did not reply in time; "refusing": it
            replied that it does not execute the command at the moment.
    """

    def __init__(self, message: str, maybe_executed: bool, kind: str = "down") -> None:
        super().__init__(message)
        self.maybe_executed = maybe_executed
        self.kind = kind


def redirection(error: RedisError, asked: Address) -> Address:
    """Return the node that a MOVED or ASK error from the node ``asked`` points to."""
    host, _, port = error.message.partition(" ")[2].rpartition(":")
    return Address(host or asked.host, int(port))
