"""An action turns a form into commands for nodes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from disque_console.model.fields import untouched
from disque_console.model.roles import Role
from disque_trio.overview.names import unquoted

TOGETHER: Final = 100  # commands sent to a node at once
Word: TypeAlias = "str | bytes | int"
WAS: Final = "-was"
"""Follows the name of a field, in that of a hidden one with the same value quoted."""

# As nodes read them: Python's int and float would take more, such as 1_0, inf and Arabic digits.
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


class Where(Enum):
    """Which nodes get a command."""

    ANY = "any"  # one that answers; it tells the others if necessary
    EVERY = "every"  # all that answer


@dataclass(frozen=True, slots=True)
class Order:
    """A command. where: the receivers, or the address of one node. but: a node to leave out. needs:
    do not send it if an earlier one failed."""

    command: tuple[Word, ...]
    where: Where | str = Where.ANY
    but: str = ""
    needs: bool = False


def batches(orders: Iterable[Order]) -> Iterator[Sequence[Order]]:
    """The orders in order, with consecutive ones for the same node together. One that needs the
    earlier ones begins a batch."""
    batch: list[Order] = []
    for order in orders:
        alone = order.needs or isinstance(order.where, Where) or len(batch) == TOGETHER
        if batch and (alone or order.where != batch[0].where):
            yield batch
            batch = []
        batch.append(order)
    if batch:
        yield batch


class Form:
    """The fields of a submitted form.

    Args:
        fields: the values of each field, in order.
        stands_for: how many jobs it is about if it does not name them; 0 if it does.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]], stands_for: int = 0) -> None:
        self._fields = fields
        self.stands_for = stands_for

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        """All fields."""
        return self._fields

    def get(self, name: str) -> str:
        """A field without the spaces around it; empty if it is missing."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """A field as it was sent, with line ends as typed."""
        values = self._fields.get(name)
        return values[0].replace("\r\n", "\n") if values else ""

    def touched(self, field: str) -> bool:
        """Whether somebody changed the field, or the form does not tell what it was made from,
        ``field`` + ``WAS``."""
        was = self._fields.get(field + WAS)
        return not was or not untouched(self.raw(field), unquoted(was[0]))

    def typed(self, field: str) -> str:
        """A name or words as typed, without the spaces around them. If nobody touched the field,
        they are what it was made from: a field cannot hold all bytes."""
        return self.get(field) if self.touched(field) else unquoted(self._fields[field + WAS][0])

    def name(self, field: str = "queue") -> str:
        """The name of a queue in a field that contains it quoted.

        Raises:
            ValueError: it is missing.
        """
        values = self._fields.get(field)
        if not values or not values[0]:
            raise ValueError(f"the form names no {field}")
        return unquoted(values[0])

    def all(self, field: str) -> list[str]:
        """All values of a field."""
        return list(self._fields.get(field, ()))

    def number(self, field: str, least: float = 0.0, whole: bool = True) -> str:
        """A number as it was typed; empty if there is none.

        Raises:
            ValueError: it is not a number, or too small.
        """
        text = self.get(field)
        if text:
            if not (_WHOLE if whole else _DECIMAL).fullmatch(text):
                raise ValueError(f"{field}: {text!r:.60} is not a number")
            if float(text) < least:
                raise ValueError(f"{field}: must be at least {least:g}")
        return text

    def words(self, *names: str) -> list[Word]:
        """Options of a command: the name and value of each number field that is set."""
        found: list[Word] = []
        for name in names:
            if text := self.number(name):
                found += [name.upper(), text]
        return found


@dataclass(frozen=True, slots=True)
class Action:
    """Something that visitors can do.

    Attributes:
        name: in the address. title: on the button. role: the lowest role that may do it.
        make: the commands. Raises ValueError if the form is invalid.
        asks: the question to confirm, from the form; None for no confirmation.
        says: the message on success, from the form and the replies (errors left out).
        danger: whether it destroys something permanently.
        of_queue: whether the question tells how many jobs are queued in the queue.
        hides: names of fields to keep out of the audit, from the form.
    """

    name: str
    title: str
    role: Role
    make: Callable[[Form], list[Order]]
    says: Callable[[Form, Sequence[object]], str]
    asks: Callable[[Form], str] | None = None
    danger: bool = False
    of_queue: bool = False
    hides: Callable[[Form], Sequence[str]] = lambda form: ()
