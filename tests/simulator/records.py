"""What the oracle knows about a job."""

from collections.abc import Callable
from dataclasses import dataclass, field

Complain = Callable[..., None]


@dataclass(slots=True)
class JobRecord:
    """What is known about one ADDJOB.

    Attributes:
        asked: when the client sent it, in µs. answers: how many replies it got.
        id, confirmed: the reply, and when it left the node, in µs. error, refused: the same if it
            was refused.
        promised_to: machines that had to have it when it was confirmed.
        sent: when and from which machine it was delivered. received: a client has it.
        acked: when and on which machine ACKJOB was answered.
        deletion_asked: a client sent FASTACK for it.
        ack_asked: a client sent ACKJOB for it. nacks: how often it may be delivered again, because
            a client sent NACK or was too late.
        letters: ids of the dead letters that it became.
        later: deliveries of the jobs that it was when it was sent back, by id.
        asked_for: the names of all commands that clients sent about it.
        clock: the lowest time that a machine's clock showed when it was requested, in ms.
        key: of ADDJOB UNIQUE. kept: seconds of FOR. until_start, replaces: it has the key until it
            starts, and ADDJOB had REPLACE. replied: when it was answered with an id, in µs.
        repeat: the last reply had its id, but the request was for another job with its key.
        cancel_asked: a client sent CANCEL for it. cancelled: when and on which machine a CANCEL was
            answered.
        versions: how many changes clients sent. updates_open: those that are not answered.
        settled, settled_at: a change that all copies had, and since when, in µs. settled_queue: the
            queue that they were in.
        others: for the first queue of a topic, the records for its other queues. They have its
            token.
    """

    token: int
    queue: bytes
    retry: int
    ttl: int
    delay: int
    repl: int
    is_async: bool
    asked: int
    answers: int = 0
    id: bytes = b""
    confirmed: int = -1
    error: str = ""
    refused: int = -1
    promised_to: list[int] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    received: bool = False
    acked: list[tuple[int, int]] = field(default_factory=list)
    deletion_asked: bool = False
    ack_asked: bool = False
    nacks: int = 0
    letters: set[bytes] = field(default_factory=set)
    asked_for: set[bytes] = field(default_factory=set)
    later: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    clock: int = 0
    key: bytes = b""
    kept: int = 0
    until_start: bool = False
    replaces: bool = False
    replied: int = -1
    repeat: bool = False
    cancel_asked: bool = False
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    versions: int = 0
    updates_open: int = 0
    settled: int = 0
    settled_at: int = -1
    settled_queue: bytes = b""
    others: "dict[bytes, JobRecord]" = field(default_factory=dict)

    @property
    def asked_to_end(self) -> bool:
        """Whether a client asked to end it."""
        return self.ack_asked or self.deletion_asked or self.cancel_asked


def token_of(body: bytes) -> int:
    """The number of the ADDJOB that made the job with this ``body``; a change of the job adds a
    slash and its own number."""
    return int(body.partition(b"/")[0])


def expected_headers(body: bytes) -> list[bytes]:
    """The headers of the job, as alternating names and values."""
    token = token_of(body)
    return [b"token", b"%d" % token, b"Content-Type", b""][: (0, 0, 0, 2, 4)[token % 5]]


def expected_group(body: bytes) -> bytes:
    """The group of the job; empty: none."""
    return (b"", b"x", b"y")[token_of(body) % 3]


def expected_note(body: bytes) -> bytes:
    """The note of the job; empty: none."""
    token = token_of(body)
    return b"" if token % 4 else b"note %d" % token


def expected_priority(body: bytes) -> int:
    """The priority of the job."""
    return (0, 0, 7, 0, 1, 0, 4)[token_of(body) % 7]
