"""Validates addresses and names of nodes, and decides which of them others can use.

The bus of a node listens 10000 above the port of its clients, so that port is at most 55535.
"""

import re
from ipaddress import IPv6Address, ip_address

BUS_OFFSET = 10_000
MAX_PORT = 65_535 - BUS_OFFSET
# Each sign of life of another node asks for the same ones, and ``ipaddress`` takes its time.
_PLAIN: dict[str, str] = {}
_MANY = 1_000
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
# The last label is no number: the system takes "127.1" and "0x7f.1" for addresses.
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?\Z){_LABEL}\.?")
_LONGEST_NAME = 254  # with a dot at the end


def is_host_name(text: str) -> bool:
    """Whether ``text`` can be the name of a host."""
    return len(text) <= _LONGEST_NAME and _HOST_NAME.fullmatch(text) is not None


def plain_ip(text: str) -> str:
    """The ip literal ``text`` in its usual spelling; empty where it is none.

    An IPv4 address that came over an IPv6 socket (``::ffff:…``) is given as the IPv4 one, so that
    one node does not seem to have two. The zone of a link-local address is kept, if it is one that
    the system can be asked for.
    """
    plain = _PLAIN.get(text)
    if plain is None:
        if len(_PLAIN) >= _MANY:
            _PLAIN.clear()
        plain = _PLAIN[text] = _plain_ip(text)
    return plain


def _plain_ip(text: str) -> str:
    """``plain_ip`` of an address that has not been asked for lately."""
    if not (text.isascii() and text.isprintable()):
        return ""  # ip_address takes any zone
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def network(ip: str) -> str:
    """Whose ``ip`` is, as far as it shows: an IPv4 address is one host's, of an IPv6 one the first
    64 bits, since a host has all that begin with them. A link-local one is a host's again."""
    plain = plain_ip(ip)
    if ":" not in plain or plain.startswith("fe80:"):
        return plain or ip
    return str(IPv6Address(int(IPv6Address(plain)) >> 64 << 64)) + "/64"


def told_ip(text: str) -> str:
    """As ``plain_ip`` for what another node says: only addresses that one can connect to from
    another machine count, so none with a zone, no multicast and no "any" address."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if "%" in text or address.is_multicast or address.is_unspecified:
        return ""
    return plain_ip(text)


def is_loopback(ip: str) -> bool:
    """Whether ``ip``, in its usual spelling, leads nowhere but to the same machine."""
    return ip.startswith("127.") or ip == "::1"


def usefulness(ip: str) -> int:
    """How many can use the address: 0 nobody (empty), 1 this machine, 2 others."""
    if not ip:
        return 0
    return 1 if is_loopback(ip) else 2


def is_port(port: int) -> bool:
    """Whether a node can have this port for its clients."""
    return 1 <= port <= MAX_PORT
