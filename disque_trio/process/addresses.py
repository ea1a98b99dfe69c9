"""Validates addresses and names of nodes, and decides which of them others can use.

The bus of a node is 10000 ports above its port for clients, so that port is at most 55535.
"""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

BUS_OFFSET = 10_000
MAX_PORT = 65_535 - BUS_OFFSET
# Each heartbeat of another node asks for the same addresses, and ``ipaddress`` is slow.
_PLAIN: dict[str, str] = {}
_MANY = 1_000
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
# The last label must not be a number: the system takes "127.1" and "0x7f.1" for addresses.
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?\Z){_LABEL}\.?")
_LONGEST_NAME = 254  # including a final dot


def is_host_name(text: str) -> bool:
    """Whether ``text`` can be the name of a host."""
    return len(text) <= _LONGEST_NAME and _HOST_NAME.fullmatch(text) is not None


def plain_ip(text: str) -> str:
    """The IP address ``text`` in its usual spelling; empty if it is not one.

    An IPv4 address from an IPv6 socket (``::ffff:…``) becomes the IPv4 address, so that one node
    does not seem to have two. The zone of a link-local address is kept, if it is one that can be
    passed to the system.
    """
    plain = _PLAIN.get(text)
    if plain is None:
        if len(_PLAIN) >= _MANY:
            _PLAIN.clear()
        plain = _PLAIN[text] = _plain_ip(text)
    return plain


def _plain_ip(text: str) -> str:
    """Compute ``plain_ip`` of an address that is not cached."""
    if not (text.isascii() and text.isprintable()):
        return ""  # ip_address accepts any zone
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def network(ip: str) -> str:
    """The owner of ``ip``, as far as it shows: an IPv4 address or a link-local one belongs to a
    host; any other IPv6 address is represented by its first 64 bits, all of which a host has."""
    plain = plain_ip(ip)
    if ":" not in plain or plain.startswith("fe80:"):
        return plain or ip
    return str(IPv6Address(int(IPv6Address(plain)) >> 64 << 64)) + "/64"


def told_ip(text: str) -> str:
    """Like ``plain_ip``, for what another node says: accepts only addresses that another machine
    can connect to, so no zones, no multicast and no "any" address."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if "%" in text or address.is_multicast or address.is_unspecified:
        return ""
    return plain_ip(text)


def is_loopback(ip: str) -> bool:
    """Whether ``ip``, in its usual spelling, can only lead to this machine."""
    return ip.startswith("127.") or ip == "::1"


def usefulness(ip: str) -> int:
    """Return the reach of the address: 0 nobody (empty), 1 this machine, 2 other machines."""
    if not ip:
        return 0
    return 1 if is_loopback(ip) else 2


def is_port(port: int) -> bool:
    """Whether a node can use this port for clients."""
    return 1 <= port <= MAX_PORT


def place_of(ip: str) -> str:
    """The place that the address ``ip`` belongs to: itself, or the first half of an IPv6 address,
    since its owner usually has all addresses that begin with it. Other text is a place of its own.
    """
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        return ip
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address, 64), strict=False))
