"""Kombu's messages as jobs: a line of JSON with everything about the message, followed by its raw
body."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from kombu.utils.json import dumps, loads

from disque_trio.client.job import Job

Message: TypeAlias = dict[str, Any]
"""A message in the form of kombu's virtual transports: ``body``, ``content-type``,
``content-encoding``, ``headers``, and ``properties``, which say where it should go."""

MAX_PRIORITY: Final = 7
TASK_ID: Final = "celery-id"
"""The header of a job that names its task by Celery's id."""

_TRANSIENT: Final = 1  # delivery_mode of AMQP


def encode(message: Message) -> bytes:
    """Encode a message as the body of a job."""
    head = {name: value for name, value in message.items() if name != "body"}
    body = message["body"]
    if isinstance(body, str):
        body = body.encode()
    return b"%b\n%b" % (dumps(head).encode(), body or b"")


def decode(job: Job) -> Message:
    """Decode the message in a job. Its delivery tag is the id of the job.

    Raises:
        ValueError: the job does not contain a message.
    """
    head, _, body = job.body.partition(b"\n")
    message = loads(head.decode())
    if not isinstance(message, dict) or "properties" not in message:
        raise ValueError("the first line of a message must contain its properties")
    message["body"] = body
    properties = message["properties"]
    properties["delivery_tag"] = job.id
    again = job.nacks + job.additional_deliveries > 0
    properties.setdefault("delivery_info", {})["redelivered"] = again
    return message


def priority(message: Message) -> int | None:
    """Return the priority of the job: Celery's 0 to 7; 8 and 9 become 7. None means 0."""
    given = message["properties"].get("priority")
    return min(max(int(given), 0), MAX_PRIORITY) or None if given else None


def due(headers: Mapping[str, Any]) -> float | None:
    """Return when a task is to run (its ``eta``), in seconds since the epoch. None: now, or the eta
    has no time zone, so that only the worker can know."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        at = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo is not None and at.timestamp() > time.time() else None


def headers(message: Message) -> dict[str, str] | None:
    """Return the headers of the job, by which it can be found; None if it is not a task's."""
    given = message["headers"]
    id = given.get("id") if "task" in given else None
    return {TASK_ID: id} if id and isinstance(id, str) else None


def expires(message: Message) -> float | None:
    """Return the message's time to live in seconds, from ``expiration`` (in ms), or None."""
    given = message["properties"].get("expiration")
    return None if given is None else int(given) / 1000


def transient(message: Message) -> bool:
    """Return whether the message may be lost with its node."""
    return bool(message["properties"].get("delivery_mode") == _TRANSIENT)
