"""Kombu's messages as jobs: a line of JSON with all about the message, and behind it its body as it
is."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from kombu.utils.json import dumps, loads

from disque_trio.client.jobs import Job

Message: TypeAlias = dict[str, Any]
"""As kombu's virtual transports have it: ``body``, ``content-type``, ``content-encoding``,
``headers``, and ``properties``, which say where it is to go."""

MAX_PRIORITY: Final = 7
_TRANSIENT: Final = 1  # delivery_mode of AMQP


def encode(message: Message) -> bytes:
    """The body of the job."""
    head = {name: value for name, value in message.items() if name != "body"}
    body = message["body"]
    if isinstance(body, str):
        body = body.encode()
    return b"%b\n%b" % (dumps(head).encode(), body or b"")


def decode(job: Job) -> Message:
    """The message of a job; its delivery tag is the id of the job.

    Raises:
        ValueError: it is none.
    """
    head, _, body = job.body.partition(b"\n")
    message = loads(head.decode())
    if not isinstance(message, dict) or "properties" not in message:
        raise ValueError("a message begins with a line that tells its properties")
    message["body"] = body
    properties = message["properties"]
    properties["delivery_tag"] = job.id
    again = job.nacks + job.additional_deliveries > 0
    properties.setdefault("delivery_info", {})["redelivered"] = again
    return message


def priority(message: Message) -> int | None:
    """The priority of the job: 0 to 7 are those of Celery, and 8 and 9 are 7. None: 0."""
    given = message["properties"].get("priority")
    return min(max(int(given), 0), MAX_PRIORITY) or None if given else None


def due(headers: Mapping[str, Any]) -> float | None:
    """When a task is to run, in seconds since the epoch: its ``eta``; None: now, or the worker has
    to say, who knows what zone a time without one belongs to."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        at = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo is not None and at.timestamp() > time.time() else None


def expires(message: Message) -> float | None:
    """Seconds that the message lives, if it says so (``expiration``, which is in ms)."""
    given = message["properties"].get("expiration")
    return None if given is None else int(given) / 1000


def transient(message: Message) -> bool:
    """Nobody minds if it is lost with its node."""
    return bool(message["properties"].get("delivery_mode") == _TRANSIENT)
