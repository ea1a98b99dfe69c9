"""What a node knows of the keys of nodes: which key each id has, and which keys are expelled.

A pin binds a node id to a public key. It is made once, and nothing that comes over the bus changes
it. Whether a key is expelled is a number that only grows: odd is expelled, even is not. Nodes tell
each other all pins, and the odd numbers: any of them may expel a key for all, but none can readmit
one elsewhere, or the expelled one would do that itself.

The text of the file has a line for each:

    pin ID KEY BY              BY: meet, first, member, or the id of the node that introduced it
    key KEY VERSION            VERSION: odd: expelled
"""

from struct import Struct
from typing import Final, NamedTuple

from disque_trio.cluster.members import is_node_id
from disque_trio.protocol.bus import HEADER_SIZE, PacketError
from disque_trio.protocol.identity import KEY_SIZE
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

MAX_PINS = 4000  # four times the members that a cluster may have
MAX_EXPELLED = 4000  # keys without a pin of which others can say that they are expelled
MAX_VERSION = (1 << 63) - 1  # odd
BY_MEET, BY_FIRST, BY_MEMBER = b"meet", b"first", b"member"

_COUNTS: Final = Struct(">II")
_PIN: Final = Struct(f">{NODE_ID_LENGTH}s{KEY_SIZE}s")
_VERSION: Final = Struct(f">{KEY_SIZE}sQ")
_SHOWN: Final = 80  # characters of a line in an error


class KeyringError(ValueError):
    """The text is not a list of keys; the message says in which line and why."""


class Pin(NamedTuple):
    """The key of a node.

    Attributes:
        id: of the node, 40 bytes.
        key: public, 32 bytes.
        by: how this node came to trust it: BY_MEET: CLUSTER MEET named the node; BY_FIRST: it was
            the first to meet this node; BY_MEMBER: it was a member when identities came into use;
            otherwise the id of the member that introduced it.
    """

    id: bytes
    key: bytes
    by: bytes


class KeysMessage(NamedTuple):
    """What another node knows.

    Attributes:
        pins: id and key of nodes.
        versions: key and version.
    """

    pins: list[tuple[bytes, bytes]]
    versions: list[tuple[bytes, int]]


def read_keys(packet: bytes) -> KeysMessage:
    """Read a KEYS. Raises ``PacketError``."""
    at = HEADER_SIZE + _COUNTS.size
    if len(packet) < at:
        raise PacketError("a packet of keys has the wrong length")
    pins, versions = _COUNTS.unpack_from(packet, HEADER_SIZE)
    middle = at + pins * _PIN.size
    if len(packet) != middle + versions * _VERSION.size:
        raise PacketError("a packet of keys has the wrong length")
    message = KeysMessage(
        [(pin[0], pin[1]) for pin in _PIN.iter_unpack(packet[at:middle])],
        [(entry[0], entry[1]) for entry in _VERSION.iter_unpack(packet[middle:])],
    )
    if not all(is_node_id(id) for id, _ in message.pins):
        raise PacketError("a packet of keys names no valid node")
    return message


class Keyring:
    """The keys that a node knows.

    Attributes:
        pins: by node id.
    """

    def __init__(self) -> None:
        self.pins: dict[bytes, Pin] = {}
        self._versions: dict[bytes, int] = {}
        self._ids: dict[bytes, dict[bytes, None]] = {}  # of the pins with a key

    def key_of(self, id: bytes) -> bytes:
        """The key of the node ``id``; empty: it has none."""
        pin = self.pins.get(id)
        return pin.key if pin is not None else b""

    def ids_of(self, key: bytes) -> list[bytes]:
        """The ids of the nodes with ``key``."""
        return list(self._ids.get(key, ()))

    def pin(self, id: bytes, key: bytes, by: bytes) -> bool:
        """Bind the node ``id``, if it is valid and has no key, to ``key``. Returns whether that was
        done."""
        if id in self.pins or self.full or not is_node_id(id):
            return False
        self._add(Pin(id, key, by))
        return True

    def _add(self, pin: Pin) -> None:
        self.pins[pin.id] = pin
        self._ids.setdefault(pin.key, {})[pin.id] = None

    def unpin(self, id: bytes) -> None:
        """Forget the key of the node ``id``, unless that is expelled."""
        key = self.key_of(id)
        if key and not self.is_expelled(key):
            del self.pins[id]
            ids = self._ids[key]
            del ids[id]
            if not ids:
                del self._ids[key]

    def clear(self) -> None:
        """Forget the keys of all nodes, except for those that are expelled."""
        for id in list(self.pins):
            self.unpin(id)

    def is_expelled(self, key: bytes) -> bool:
        """Whether ``key`` is expelled."""
        return self._versions.get(key, 0) & 1 == 1

    def expelled(self) -> list[bytes]:
        """The keys that are expelled."""
        return [key for key, version in self._versions.items() if version & 1]

    def decide(self, key: bytes, expelled: bool) -> bool:
        """Expel ``key``, or undo that. To expel it again reaches nodes that have readmitted it.
        Returns False if that cannot be undone any more."""
        version = self._versions.get(key, 0)
        if expelled:
            version += 2 if version & 1 else 1
            self._versions[key] = min(version, MAX_VERSION)
        elif version & 1:
            if version == MAX_VERSION:
                return False
            self._versions[key] = version + 1
        return True

    def hear(self, key: bytes, version: int) -> bool:
        """Take over that another node has expelled ``key``, if that is news. Returns whether it is.
        What is not the ``version`` of an expelled key is ignored."""
        known = self._versions.get(key, 0)
        if not known < version <= MAX_VERSION or not version & 1:
            return False
        if not known and len(self._versions) >= MAX_EXPELLED and key not in self._ids:
            return False
        self._versions[key] = version
        return True

    @property
    def full(self) -> bool:
        """Whether no other node can get a pin."""
        return len(self.pins) >= MAX_PINS

    def data(self) -> bytes:
        """The pins and the expelled keys, as the data of a KEYS."""
        return self.data_about(list(self.pins), self.expelled())

    def data_about(self, ids: list[bytes], keys: list[bytes]) -> bytes:
        """The pins of the nodes ``ids``, and the versions of ``keys``, as the data of a KEYS."""
        return b"".join(
            [
                _COUNTS.pack(len(ids), len(keys)),
                *[_PIN.pack(id, self.pins[id].key) for id in ids],
                *[_VERSION.pack(key, self._versions[key]) for key in keys],
            ]
        )

    def dump(self) -> str:
        """The text of the file."""
        pins = [
            f"pin {pin.id.decode()} {pin.key.hex()} {pin.by.decode()}\n"
            for pin in self.pins.values()
        ]
        versions = [f"key {key.hex()} {version}\n" for key, version in self._versions.items()]
        return "".join(pins + versions)

    def load(self, text: str) -> None:
        """Load what ``dump`` returned into an empty keyring. Raises ``KeyringError``."""
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split()
            if words and not self._load_line(words):
                raise KeyringError(f"line {number}: {line[:_SHOWN]!r} is neither a pin nor a key")

    def _load_line(self, words: list[str]) -> bool:
        """Load a line. Returns whether it is valid."""
        if words[0] == "pin" and len(words) == 4:
            id, by = words[1].encode("utf-8", "replace"), words[3].encode("utf-8", "replace")
            key = parse_key(words[2])
            known = by in (BY_MEET, BY_FIRST, BY_MEMBER) or is_node_id(by)
            if not (is_node_id(id) and key and known) or id in self.pins:
                return False
            self._add(Pin(id, key, by))
            return True
        if words[0] == "key" and len(words) == 3:
            key = parse_key(words[1])
            text = words[2]
            number = text.isascii() and text.isdigit() and len(text) <= 19
            if not key or not number or not 0 < int(text) <= MAX_VERSION or key in self._versions:
                return False
            self._versions[key] = int(text)
            return True
        return False


def parse_key(text: str) -> bytes:
    """Read a public key of 64 hex characters; empty: it is none."""
    if len(text) != 2 * KEY_SIZE or text.lower().strip("0123456789abcdef"):
        return b""
    return bytes.fromhex(text)
