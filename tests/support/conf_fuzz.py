"""nodes.conf files as they might be left after a failure, generated from seeds."""

from __future__ import annotations

import random
from collections.abc import Callable

from disque_trio.cluster.nodes_conf import NodeLine, format_nodes
from disque_trio.protocol.bus import NODE_FAIL, NODE_LEAVING, NODE_MYSELF, NODE_NOADDR, NODE_PFAIL

IPS = [
    "127.0.0.1",
    "::1",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.200",
    "2001:db8::7",
    "fe80::1%lo",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "224.0.0.1",
    "ff02::1",
    "::ffff:192.0.2.9",
    "",
]
STRANGE_IPS = [
    "fe80::1%eth9", "fe80::1%\0", "fe80::1%\ufffd", "fe80::1%é", "fe80::1%" + "z" * 200,
    "fe80::1%0", "fe80::1%99999999999", "192.0.2.1%lo", "::ffff:192.0.2.9%lo",
]  # fmt: skip
WORDS = [
    "localhost", "disque.invalid", "a" * 300, "10.1", "0x7f.1", "1.2.3.4.5", "[::1]", "fe80::1%",
    "fe80::1%eth9", "fe80::1%\0", "fe80::1%\ufffd", "fe80::1%é", "fe80::1%" + "z" * 200, "%", ":",
    "-1", "0", "1", "55535", "55536", "65535", "65536", "4294967296", "9223372036854775807",
    "9223372036854775808", "9" * 19, "9" * 400, "٣", "1e9", "0x10", "myself", "fail", "fail?",
    "noaddr", "handshake", "leaving", "noflags", "myself,fail", "vars", "connected", "\0", "\r",
    "\x85", "\u2028", "0" * 40, "f" * 40, "F" * 40, "g" * 40,
]  # fmt: skip
BAD_LINES = ["rubbish", "vars", "\0" * 50, "a b c d e f", "{} 10.0.0.1:7711 myself 0 0 connected"]
FLAGS = [0, 0, 0, NODE_PFAIL, NODE_FAIL, NODE_NOADDR, NODE_LEAVING, NODE_FAIL | NODE_NOADDR]
MOST = 40  # nodes, in most files
CROWDS = [300, 1000, 3000]  # nodes, in one of CROWD_EVERY files
CROWD_EVERY = 70


def damaged_conf(rng: random.Random, base: str | None = None) -> bytes:
    """A valid, or nearly valid, file with some mutations."""
    text = _base(rng) if base is None else base
    data = bytearray(text.encode("utf-8", "replace"))
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3, 8])):
        rng.choice(_MUTATIONS)(rng, data)
    return bytes(data)


def _base(rng: random.Random) -> str:
    crowd = rng.randrange(CROWD_EVERY) == 0
    count = rng.choice(CROWDS) if crowd else min(rng.randint(0, MOST), rng.randint(0, MOST))
    lines = [_line(rng) for _ in range(count + 1)]
    lines[0].flags |= NODE_MYSELF
    rng.shuffle(lines)
    if rng.randrange(8) == 0:
        rng.choice(lines).ip = rng.choice(STRANGE_IPS)
    text = format_nodes(lines)
    if rng.randrange(4) == 0:
        text += rng.choice(BAD_LINES).format(lines[0].id.decode()) + "\n"
    return text


def _line(rng: random.Random) -> NodeLine:
    return NodeLine(
        b"%040x" % rng.getrandbits(160),
        rng.choice(IPS),
        rng.choice([0, 1, 7711, 7712, rng.randrange(65_536), 55_535, 55_536]),
        rng.choice(FLAGS),
        rng.choice([0, 1, rng.getrandbits(41), 2**63 - 1, 2**63]),
        rng.choice([0, 1, rng.getrandbits(41), 2**63 - 1, 2**63]),
    )


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _put(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice([b"\0", b"\n", b" ", b"\t", b"%", b":", b",", b"\xff", b"\xc3\xa9"])


def _cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.choice([1, 1, 5, 40, 1000])]


def _end(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:] = rng.choice([b"", b"\0" * (len(data) - at), rng.randbytes(30)])


def _again(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = data[at : at + rng.choice([1, 10, 90, 2000])]


def _field(rng: random.Random, data: bytearray) -> None:
    lines = [line.split(b" ") for line in bytes(data).split(b"\n")]
    fields = rng.choice(lines)
    at = rng.randrange(len(fields))
    word = rng.choice(WORDS).encode("utf-8", "replace")
    if at == 1:
        host, _, port = fields[1].rpartition(b":")
        word = word + b":" + port if rng.randrange(2) else host + b":" + word
    fields[at] = word
    data[:] = b"\n".join(b" ".join(line) for line in lines)


_MUTATIONS: list[Callable[[random.Random, bytearray], None]] = [
    _flip, _put, _cut, _end, _again, _field, _field, _field,
]  # fmt: skip
