"""A job as SHOW describes it. This is the list of SHOW's fields for whoever reads them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self, get_origin

from disque_trio.client.job import Letter
from disque_trio.client.replies import Record, record
from disque_trio.respclient.connection import Reply

_FACT: Final = {"fact": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job as one node sees it. What the node does not say has the default.

    The attributes are named as the fields of the reply are, with underscores, and their types say
    what the fields must be. docs/commands.md explains them. Those marked as facts are names and
    texts that can be shown to people without more ado.
    """

    id: str = ""
    queue: str = ""
    state: str = ""
    repl: int = 0
    ttl: int = 0
    ctime: int = 0
    delay: int = 0
    retry: int = 0
    nacks: int = 0
    additional_deliveries: int = 0
    nodes_delivered: tuple[str, ...] = ()
    nodes_confirmed: tuple[str, ...] = ()
    next_requeue_within: int | None = None
    next_awake_within: int | None = None
    body: bytes = b""
    priority: int = 0
    headers: tuple[str, ...] = ()
    group: str = field(default="", metadata=_FACT)
    note: str = field(default="", metadata=_FACT)
    unique_key: str = field(default="", metadata=_FACT)
    unique_until: str = field(default="", metadata=_FACT)
    added_to: str = field(default="", metadata=_FACT)
    attempts: int | None = None
    progress: str = field(default="", metadata=_FACT)
    progress_text: str = field(default="", metadata=_FACT)
    last_reason: str = field(default="", metadata=_FACT)
    dead_from: str | None = None
    dead_why: str = ""
    dead_attempts: int = 0
    dead_reason: str = ""
    first_id: str = ""
    body_size: int = 0
    client: int = 0
    client_since: int | None = None

    @classmethod
    def of(cls, record: Record) -> Self:
        """Read a reply. Fields of another type than expected count as missing."""
        values: dict[str, Any] = {}
        for attribute, name, kind in _KINDS:
            value = record.get(name)
            if isinstance(value, kind):
                values[attribute] = tuple(value) if isinstance(value, list) else value
        values.setdefault("body_size", len(values.get("body", b"")))
        return cls(**values)

    @property
    def created(self) -> float:
        """When it was added, in s since the epoch."""
        return self.ctime / 1e9

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """The names and values of the headers."""
        return tuple(zip(self.headers[::2], self.headers[1::2], strict=False))

    @property
    def is_dead_letter(self) -> bool:
        """Whether it is a dead letter that was not sent back."""
        return self.dead_from is not None and self.dead_why != "redriven"

    @property
    def letter(self) -> Letter | None:
        """If it is a dead letter, or was one, where it came from."""
        if self.dead_from is None:
            return None
        return Letter(
            self.dead_from, self.dead_why, self.dead_attempts, self.dead_reason, self.first_id
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The titles and values of facts that it has."""
        found = [
            (each.name.replace("_", " ").capitalize(), getattr(self, each.name))
            for each in fields(ShownJob)
            if "fact" in each.metadata
        ]
        return [(title, value) for title, value in found if value]


_KINDS: Final[list[tuple[str, str, Any]]] = [
    (each.name, each.name.replace("_", "-"), list if get_origin(each.type) is tuple else each.type)
    for each in fields(ShownJob)
]
"""Attributes, names of fields, and what these must be instances of."""


def jobs_in(page: Iterable[Reply]) -> list[ShownJob]:
    """The jobs in a page of JSCAN ``REPLY all``, or in replies to SHOW. Raises ProtocolError."""
    return [ShownJob.of(known) for entry in page if (known := record(entry)) is not None]
