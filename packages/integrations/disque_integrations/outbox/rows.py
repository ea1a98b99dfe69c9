"""A row of the outbox: converts the arguments of ``add`` to values of columns, and a row to a job.

Does not know any database library.
"""

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict
from uuid import UUID, uuid4

from disque_trio.client import tracing
from disque_trio.client.batch import NewJob
from disque_trio.client.requests import Headers, pairs_of, unix_ms
from disque_trio.resp.limits import MAX_BULK
from disque_trio.respclient.values import Name, as_text

TABLE = "disque_outbox"
MAX_GROUP = 1024  # bytes
LIMITS: Final[dict[str, tuple[int, int | None]]] = {
    "at": (0, 4_294_967_295_000 - 1),  # ms: before 2106
    "priority": (0, 7),
    "retry": (0, None),
    "ttl": (1, None),
    "maxlen": (1, None),
    "replicate": (1, 65_535),
}
"""The smallest and the largest numbers that nodes accept; None: no limit here."""


class Columns(TypedDict):
    """The columns of a new row that have no default."""

    key: UUID
    queue: str
    body: bytes
    options: str
    added: float


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row that waits to be forwarded.

    Attributes:
        key: the UNIQUE key.
        options: the options of ADDJOB, as JSON.
        attempts: how often a node has refused it.
    """

    key: UUID
    queue: str
    body: bytes
    options: str
    attempts: int

    def job(self) -> NewJob:
        """Return the job to add.

        Raises:
            ValueError: the options are invalid, because somebody else wrote the row.
        """
        try:
            options = json.loads(self.options)
        except RecursionError as error:
            raise ValueError("the options are nested too deeply") from error
        if not isinstance(options, dict):
            raise ValueError(f"the options are not a JSON object: {self.options[:100]}")
        at = options.pop("at_ms", None)
        _numbers(at=at, **{name: options.get(name) for name in LIMITS if name != "at"})
        group = options.pop("group", None)
        headers = options.pop("headers", None)
        try:
            return NewJob(
                queue=self.queue,
                body=self.body,
                unique=str(self.key),
                at=None if at is None else at / 1000,
                group=None if group is None else _bytes(group),
                headers=headers and [(_bytes(name), _bytes(value)) for name, value in headers],
                **options,
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"the options are not those of a job: {error}") from error


def columns(  # noqa: PLR0913
    queue: Name,
    body: Name,
    *,
    delay: float | None = None,
    at: datetime | float | None = None,
    retry: int | None = None,
    ttl: int | None = None,
    maxlen: int | None = None,
    priority: int | None = None,
    group: Name | None = None,
    headers: Headers | None = None,
    replicate: int | None = None,
) -> Columns:
    """Return the columns of a new row for a job; see ``Outbox.add``.

    Raises:
        ValueError: no node would accept such a job.
    """
    now = time.time()
    if delay is not None:
        if at is not None:
            raise ValueError("give either a delay or a time")
        # Counted from now on, even if the row is forwarded late.
        at = now + delay
    body = body.encode() if isinstance(body, str) else bytes(body)
    if len(body) > MAX_BULK:
        raise ValueError(f"a body may have at most {MAX_BULK} bytes, this one has {len(body)}")
    try:
        at_ms = None if at is None else unix_ms(at)
    except OverflowError as error:
        raise ValueError(f"invalid time: {error}") from error
    _numbers(at=at_ms, priority=priority, retry=retry, ttl=ttl, maxlen=maxlen, replicate=replicate)
    pairs = pairs_of(headers)
    if tracing.tracer is not None:
        pairs += tracing.tracer.creating(queue, pairs)
    group = None if group is None else as_text(group)
    if group is not None and not 0 < len(_bytes(group)) <= MAX_GROUP:
        raise ValueError(f"the name of a group must have 1 to {MAX_GROUP} bytes")
    options: dict[str, Any] = {
        "at_ms": at_ms,
        "retry": retry,
        "ttl": ttl,
        "maxlen": maxlen,
        "priority": priority,
        "group": group,
        "headers": [(as_text(name), as_text(value)) for name, value in pairs] or None,
        "replicate": replicate,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return Columns(
        key=uuid4(),
        queue=_queue(queue),
        body=body,
        options=json.dumps(given, separators=(",", ":")),
        added=now,
    )


def _queue(name: Name) -> str:
    text = name if isinstance(name, str) else name.decode()  # UnicodeDecodeError is a ValueError
    if not text or "\0" in text:
        raise ValueError("the name of a queue must not be empty or contain a zero byte")
    text.encode()
    return text


def _numbers(**values: object) -> None:
    """Raise ValueError if a number among the options is not an integer, or exceeds its limits."""
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be an integer, not {value!r}")
        least, most = LIMITS[name]
        if value < least or (most is not None and value > most):
            limits = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{name} must be {limits}, not {value}")


def _bytes(value: str) -> bytes:
    """Reverse ``as_text``."""
    return value.encode("utf-8", "surrogateescape")


def row_of(key: UUID, queue: str, body: Any, options: str, attempts: int) -> Row:
    """Make a row from what a database returns; the type of bodies depends on the driver."""
    return Row(key, queue, bytes(body), options, attempts)
