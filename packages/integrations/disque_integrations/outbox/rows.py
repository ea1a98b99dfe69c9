"""A row of the outbox: converts the arguments of ``add`` to values of columns, and a row to a job.

Does not know any database library.
"""

import json
import time
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, cast
from uuid import UUID, uuid4

from disque_trio.client import tracing
from disque_trio.client.batch import NewJob
from disque_trio.client.requests import pairs_of
from disque_trio.job_options import (
    AddOptions,
    Headers,
    JobOptions,
    KeyOptions,
    check,
    check_key,
    stored,
    unix_ms,
)
from disque_trio.resp.limits import MAX_BULK
from disque_trio.respclient.values import Name, as_text

TABLE = "disque_outbox"


class Columns(TypedDict):
    """The columns of a new row that have no default."""

    key: UUID
    queue: str
    body: bytes
    options: str
    added: float


_OF_KEYS = KeyOptions.__annotations__.keys()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row that waits to be forwarded.

    Attributes:
        key: the UNIQUE key, unless the options have another one.
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
        headers = options.pop("headers", None)
        unique, unique_for = options.pop("unique", None), options.pop("unique_for", None)
        try:
            if at is not None:
                options["at"] = at / 1000
            of_key = {name: options.pop(name) for name in _OF_KEYS & options.keys()}
            check(cast(JobOptions, options))
            check_key(cast(KeyOptions, of_key), unique is not None, unique_for is not None)
            of_job = cast(AddOptions, {**options, **of_key})
            return NewJob(
                queue=self.queue,
                body=self.body,
                unique=str(self.key if unique is None else unique),
                own=unique is not None,
                unique_for=None if unique_for is None else float(unique_for),
                headers=headers and [(_bytes(name), _bytes(value)) for name, value in headers],
                options=of_job,
            )
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"the options are not those of a job: {error}") from error


class KeyedOptions(AddOptions, total=False):
    """Options of a row.

    Keys:
        unique: a UNIQUE key in place of that of the row.
        unique_for: seconds to keep it; None: as long as the job lives.
    """

    unique: str | None
    unique_for: float | None


def columns(
    queue: Name, body: Name, *, headers: Headers | None = None, **options: Unpack[KeyedOptions]
) -> Columns:
    """Return the columns of a new row for a job; see ``Outbox.add``.

    Raises:
        TypeError: there is no such option.
        ValueError: no node would accept such a job.
    """
    now = time.time()
    delay = options.pop("delay", None)
    if delay is not None:
        if options.get("at") is not None:
            raise ValueError("give either a delay or a time")
        # Counted from now on, even if the row is forwarded late.
        options["at"] = now + delay
    body = body.encode() if isinstance(body, str) else bytes(body)
    if len(body) > MAX_BULK:
        raise ValueError(f"a body may have at most {MAX_BULK} bytes, this one has {len(body)}")
    keys = {
        "unique": options.pop("unique", None),
        "unique_for": options.pop("unique_for", None),
        "unique_until": options.pop("unique_until", None),
        "replace": options.pop("replace", None),
    }
    of_key = cast(KeyOptions, keys)
    check_key(of_key, keys["unique"] is not None, keys["unique_for"] is not None)
    given = stored(cast(JobOptions, options))
    given |= {name: value for name, value in keys.items() if value is not None}
    if "at" in given:
        given["at_ms"] = unix_ms(given.pop("at"))
    pairs = pairs_of(headers)
    if tracing.tracer is not None:
        pairs += tracing.tracer.creating(queue, pairs)
    if pairs:
        given["headers"] = [(as_text(name), as_text(value)) for name, value in pairs]
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


def _bytes(value: str) -> bytes:
    """Reverse ``as_text``."""
    return value.encode("utf-8", "surrogateescape")


def row_of(key: UUID, queue: str, body: Any, options: str, attempts: int) -> Row:
    """Make a row from what a database returns; the type of bodies depends on the driver."""
    return Row(key, queue, bytes(body), options, attempts)
