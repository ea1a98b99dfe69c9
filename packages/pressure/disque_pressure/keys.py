"""The names of the keys of a queue.

Twelve keys belong to the protocol. Six more are our own (``SIDE``): ``held`` says which of our
clients holds a role or deletes the queue, ``lease`` that this client was alive a moment ago. All
six expire on their own, since clients that do not know them cannot delete them.

On a Redis cluster, all keys of a queue must be in one slot. They are if the prefix or the name
holds a hash tag, which is a part in braces; ``tagged_prefix`` adds one to a prefix.
"""

from disque_pressure.errors import InvalidNameError

PRODUCER = "producer"
CONSUMER = "consumer"

# Suffixes and types of the protocol's keys.
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
        data, bound, closed, not_full, producer_free, consumer_free: the keys that are waited for.
        every: all keys, in the order of PROTOCOL and then SIDE.
        for_put, for_get: the keys for the scripts of a producer and of a consumer, in order.

    Raises:
        InvalidNameError: the name is empty, cannot be encoded as UTF-8, or ends like a key of
            another queue (``x:bound`` would be the bound of the queue ``x``).
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
    """Raise InvalidNameError if no queue can have this name, TypeError if it is not a str."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a queue must be a str, not {type(name).__name__}")
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
    """Add a hash tag to ``prefix``, so that all its keys are in one slot of a cluster."""
    return prefix if "{" in prefix else f"{{{prefix}}}"


def text(value: bytes) -> str:
    """Decode bytes from Redis for display."""
    return value.decode("utf-8", "backslashreplace")
