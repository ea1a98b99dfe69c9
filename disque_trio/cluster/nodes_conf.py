"""Parses and writes the text of nodes.conf and of CLUSTER NODES.

One line per node: ``ID IP:PORT FLAGS PING-SENT PONG-RECEIVED connected|disconnected``, including
this node, with the flag ``myself``. Handshakes are not written; empty lines and ``vars`` lines are
ignored. It is the format of the C program, in both directions.
"""

from dataclasses import dataclass

from disque_trio.cluster.members import is_node_id
from disque_trio.process.addresses import plain_ip
from disque_trio.protocol.bus import (
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_MYSELF,
    NODE_NOADDR,
    NODE_PFAIL,
)

_WORDS = (
    (NODE_MYSELF, "myself"),
    (NODE_PFAIL, "fail?"),
    (NODE_FAIL, "fail"),
    (NODE_HANDSHAKE, "handshake"),
    (NODE_NOADDR, "noaddr"),
    (NODE_LEAVING, "leaving"),
)
_FLAGS = {word: flag for flag, word in _WORDS} | {"noflags": 0}
_FIELDS = 6
_SHOWN = 80  # characters of a field in an error


class NodesConfError(ValueError):
    """The text is not a valid nodes.conf; the message says in which line and why."""


@dataclass(slots=True)
class NodeLine:
    """One node.

    Attributes:
        id: 40 bytes.
        ip: text, may be empty.
        port: for clients, 0 to 65535.
        flags: NODE_* bits.
        ping_sent, pong_received: ms since the epoch; 0: never.
    """

    id: bytes
    ip: str
    port: int
    flags: int
    ping_sent: int = 0
    pong_received: int = 0
    connected: bool = True


@dataclass(slots=True)
class NodesConf:
    """The whole file: this node and the others."""

    myself: NodeLine
    others: list[NodeLine]


def format_nodes(lines: list[NodeLine]) -> str:
    """The text of CLUSTER NODES, or of nodes.conf."""
    return "".join(
        f"{line.id.decode()} {line.ip}:{line.port} {_flag_words(line.flags)} "
        f"{line.ping_sent} {line.pong_received} "
        f"{'connected' if line.connected else 'disconnected'}\n"
        for line in lines
    )


def _flag_words(flags: int) -> str:
    return ",".join(word for flag, word in _WORDS if flags & flag) or "noflags"


def parse_nodes(text: str) -> NodesConf:
    """Parse a nodes.conf.

    Raises:
        NodesConfError: a line is invalid, or not exactly one is about this node.
    """
    myself: NodeLine | None = None
    others: dict[bytes, NodeLine] = {}
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        if not fields or fields[0].lower() == "vars":
            continue
        try:
            node = _parse_line(fields)
            if (myself is not None and node.id == myself.id) or node.id in others:
                raise NodesConfError(f"node {fields[0]} is there twice")
            if not node.flags & NODE_MYSELF:
                others[node.id] = node
            elif myself is None:
                myself = node
            else:
                raise NodesConfError("a second node is flagged as myself")
        except NodesConfError as problem:
            raise NodesConfError(f"line {number}: {problem}") from None
    if myself is None:
        raise NodesConfError("no node is flagged as myself")
    return NodesConf(myself, [o for o in others.values() if not o.flags & NODE_HANDSHAKE])


def _parse_line(fields: list[str]) -> NodeLine:
    if len(fields) != _FIELDS:
        raise NodesConfError(f"{_FIELDS} fields are needed, there are {len(fields)}")
    id = fields[0].encode("utf-8", "replace")
    if not is_node_id(id):
        raise NodesConfError(f"{_shown(fields[0])} is not the id of a node")
    host, colon, port = fields[1].rpartition(":")
    ip = plain_ip(host)
    if not colon or (host and not ip):
        raise NodesConfError(f"{_shown(fields[1])} is not an address")
    flags = 0
    for word in fields[2].split(","):
        flag = _FLAGS.get(word.lower())
        if flag is None:
            raise NodesConfError(f"unknown flag {_shown(word)}")
        flags |= flag
    return NodeLine(
        id,
        ip,
        _number(port, 65_535, "a port"),
        flags,
        _number(fields[3], 2**63, "a time"),
        _number(fields[4], 2**63, "a time"),
        fields[5] == "connected",
    )


def _number(text: str, limit: int, what: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= limit:
        return int(text)
    raise NodesConfError(f"{_shown(text)} is not {what}")


def _shown(text: str) -> str:
    """``text`` for use in a message: a damaged file may have a field of megabytes."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
