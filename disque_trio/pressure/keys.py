"""The names of the keys of a queue. Owns nothing else.

Twelve keys are the protocol's. Six are our own beside them (``SIDE``): who of us holds a role or
deletes the queue (``held``), and that this one was alive a moment ago (``lease``). All six expire
on their own, because clients that do not know them cannot delete them.

On a Redis cluster all keys of a queue have to be in one slot. They are if the prefix or the name
holds a hash tag, a part in braces; ``tagged_prefix`` makes one of a prefix.
"""

from disque_trio.pressure.errors import InvalidNameError

PRODUCER = "producer"
CONSUMER = "consumer"

# Suffix and type of the protocol's keys.
PROTOCOL: tuple[tuple[str, str], ...] = (
    ("", "list"),
    (":bound", "string"),
    (":closed", "list"),
    (":not_full", "list"),
    (":producer", "string"),
    (":producer_free", "list"),
    (":stats:produced_messages", "string"),
    (":stats:produced_bytes", "string"),
    (":consumer", "string"),
    (":consumer_free", "list"),
    (":stats:consumed_messages", "string"),
    (":stats:consumed_bytes", "string"),
)

SIDE: tuple[tuple[str, str], ...] = (
    (":lease:producer", "string"),
    (":held:producer", "string"),
    (":lease:consumer", "string"),
    (":held:consumer", "string"),
    (":lease:delete", "string"),
    (":held:delete", "string"),
)

RESERVED = tuple(suffix for suffix, _ in PROTOCOL + SIDE if suffix)


class Keys:
    """The keys of the queue ``name`` under ``prefix``, as bytes.

    Attributes:
        data, bound, closed, not_full, producer_free, consumer_free: keys that are waited for.
        every: all keys in the order of PROTOCOL, then SIDE.
        for_put, for_get: what the scripts of a producer and of a consumer get, in their order.

    Raises:
        InvalidNameError: the name is empty or ends like a key that belongs to another queue
            (``x:bound`` would be the bound of the queue ``x``), or cannot be written as UTF-8.
    """

    def __init__(self, prefix: str, name: str) -> None:
        check_name(name)
        self.prefix = prefix
        self.name = name
        base = self.data = f"{prefix}:{name}".encode()
        self.protocol = [base + suffix.encode() for suffix, _ in PROTOCOL]
        self.every = self.protocol + [base + suffix.encode() for suffix, _ in SIDE]
        common = self.protocol[:4]
        self.bound, self.closed, self.not_full = common[1:]
        self.producer_free = self.protocol[5]
        self.consumer_free = self.protocol[9]
        self.for_put = common + self.protocol[4:8] + self.every[12:14] + [self.producer_free]
        self.for_get = common + self.protocol[8:12] + self.every[14:16] + [self.producer_free]


def check_name(name: str) -> None:
    """Raises InvalidNameError if ``name`` cannot be that of a queue, TypeError if it is no text."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a queue is a str, not {type(name).__name__}")
    if not name:
        raise InvalidNameError(name, "a queue needs a name")
    for suffix in RESERVED:
        if name.endswith(suffix):
            raise InvalidNameError(
                name, f"queue name {name!r} ends with {suffix!r}, as a key of another queue does"
            )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidNameError(name, f"queue name {name!r} is not UTF-8") from error


def tagged_prefix(prefix: str) -> str:
    """``prefix`` with a hash tag, so that all keys under it are in one slot of a cluster."""
    return prefix if "{" in prefix else f"{{{prefix}}}"


def text(value: bytes) -> str:
    """Bytes of Redis for people."""
    return value.decode("utf-8", "backslashreplace")
