"""Addresses of servers.

======================  ====================================================================
written                 means
======================  ====================================================================
``host:7711``           a name or an IPv4 address, and a port
``[2001:db8::1]:7711``  an IPv6 address and a port
``host``, ``[::1]``     the default port, where there is one
``::1``                 the same as ``[::1]``, since no port can be meant
``:7711``, ``7711``     the default host, where there is one: where a program listens
``unix:/path``          a Unix socket, for nodes
======================  ====================================================================

Without brackets, the end of an IPv6 address may also be read as a port, as in ``::1:7711``. curl
and programs in Go, such as NATS, refuse such text, and redis-cli takes the end for a port. Here it
is an error that shows both readings; one that can be read in one way only is accepted. Port 0 is
accepted where it means none.
"""

from typing import Final, NamedTuple

EXPECTED: Final = "an address such as host:port or [ipv6]:port"
MAX_PORT: Final = 65_535


class AmbiguousError(ValueError):
    """An IPv6 address needs brackets: its end may be a port. The text shows what to write."""


class Address(NamedTuple):
    """Where a server listens: a TCP host and port, or the path of a Unix socket. Without a port,
    ``host`` is the name of a service, whose location sentinels know."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return format_address(self.host, self.port) if self.port else self.host


def format_address(host: str, port: int) -> str:
    """Write a host and its port, an IPv6 address with brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """The host in what ``format_address`` has written."""
    return address.rpartition(":")[0].strip("[]")


def read_address(
    text: str, port: int | None = None, host: str | None = None, lowest: int = 1
) -> Address:
    """Read the address of a TCP server.

    Args:
        port: the default; None: ``text`` must have one.
        host: for a port that stands alone; None: ``text`` must have one.
        lowest: the lowest port.

    Raises:
        AmbiguousError: ``text`` may be a host, or a host and a port.
        ValueError: it is neither. The error shows it.
    """
    name, digits = _split(text)
    if digits is None and host is not None and name.isascii() and name.isdigit():
        name, digits = "", name
    if not name:
        if host is None or digits is None:
            raise ValueError(f"no host in the address {text!r}")
        name = host
    elif name.isdigit():  # the system would take it for an IPv4 address
        raise ValueError(f"{text!r}: a number is no host; if it is a port, write host:{name}")
    elif not (":" in name or _is_name(name)):
        raise ValueError(f"no host can have the name in the address {text!r}")
    if digits is None:
        if port is None:
            raise ValueError(f"no port in the address {text!r}")
        return Address(name, port)
    number = _port(digits)
    if number < lowest:
        raise ValueError(f"the port of {text!r} is not a number from {lowest} to {MAX_PORT}")
    return Address(name, number)


def read_node(text: str, port: int) -> Address:
    """Read the address of a node, which may also be that of a Unix socket.

    Raises:
        ValueError: as for ``read_address``.
    """
    if not text.startswith("unix:"):
        return read_address(text, port)
    path = text.removeprefix("unix:")
    if not path:
        raise ValueError(f"no path in the address {text!r}")
    return Address(path=path)


def _split(text: str) -> tuple[str, str | None]:
    """The host, and the digits of the port or None. Raises ValueError."""
    if any(letter.isspace() or not letter.isprintable() or letter in "/@" for letter in text):
        raise ValueError(f"expected {EXPECTED}, not {text!r}")
    host, colon, digits = text.rpartition(":")
    if text.startswith("["):
        if text.endswith("]"):
            host, colon, digits = text, "", ""
        if not host.endswith("]") or not _is_ipv6(host[1:-1]):
            raise ValueError(f"expected {EXPECTED}, not {text!r}")
        return host[1:-1], digits if colon else None
    if ":" not in host:
        return (host, digits) if colon else (text, None)
    whole = _is_ipv6(text)
    if _port(digits) > 0 and _is_ipv6(host):
        both = f"[{text}] for the host, or " if whole else ""
        raise AmbiguousError(f"{text}: write {both}[{host}]:{digits} for host and port")
    if not whole:
        raise ValueError(f"expected {EXPECTED}, not {text!r}")
    return text, None


def _port(digits: str) -> int:
    """The port; -1: it is none."""
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_PORT)):
        port = int(digits)
        return port if port <= MAX_PORT else -1
    return -1


def _is_name(text: str) -> bool:
    """Whether the system can look ``text`` up, and does not fail with a UnicodeError."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    from ipaddress import IPv6Address  # slow to load, and most addresses have no colon

    try:
        IPv6Address(text)
    except ValueError:
        return False
    return ":" not in text.partition("%")[2]
