"""What an action is: a form becomes commands for nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from disque_trio.console.model.names import unquoted
from disque_trio.console.model.roles import Role

Word: TypeAlias = "str | bytes | int"


class Where(Enum):
    """Which nodes get a command."""

    ANY = "any"  # one that answers; it tells the others if need be
    EVERY = "every"  # all that answer


@dataclass(frozen=True, slots=True)
class Order:
    """A command. where: an address is that of one node. but: one that does not get it, of all.
    needs: it is not sent when one before it has failed."""

    command: tuple[Word, ...]
    where: Where | str = Where.ANY
    but: str = ""
    needs: bool = False


class Form:
    """The fields of a form that was sent.

    Args:
        fields: the values of each field, in order.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        """All of them."""
        return self._fields

    def get(self, name: str) -> str:
        """A field without the spaces around it; empty: it is not there."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """A field as it was sent, with line ends as they were typed."""
        values = self._fields.get(name)
        return values[0].replace("\r\n", "\n") if values else ""

    def name(self, field: str = "queue") -> str:
        """The name of a queue in a field that carries it quoted.

        Raises:
            ValueError: it is not there.
        """
        values = self._fields.get(field)
        if not values or not values[0]:
            raise ValueError(f"the form names no {field}")
        return unquoted(values[0])

    def all(self, field: str) -> list[str]:
        """All values of a field."""
        return list(self._fields.get(field, ()))

    def number(self, field: str, least: float = 0.0, whole: bool = True) -> str:
        """A number as it was typed; empty: none was.

        Raises:
            ValueError: it is no number, or too small.
        """
        text = self.get(field)
        if text:
            try:
                value = int(text) if whole else float(text)
            except ValueError:
                raise ValueError(f"{field}: {text!r} is no number") from None
            if not value >= least:
                raise ValueError(f"{field}: at least {least:g}")
        return text

    def words(self, *names: str) -> list[Word]:
        """Options of a command: the name and the number of each field that has one."""
        found: list[Word] = []
        for name in names:
            if text := self.number(name):
                found += [name.upper(), text]
        return found


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done.

    Attributes:
        name: in the address. title: on the button. role: the least that may do it.
        make: the commands. Raises ValueError: the form says something impossible.
        asks: what is asked before, of the form; None: nothing is.
        says: what is said of success, of the form and the replies (the errors left out).
        danger: whether it takes something away for good.
        hides: names of fields that no audit may have, of the form.
    """

    name: str
    title: str
    role: Role
    make: Callable[[Form], list[Order]]
    says: Callable[[Form, Sequence[object]], str]
    asks: Callable[[Form], str] | None = None
    danger: bool = False
    hides: Callable[[Form], Sequence[str]] = lambda form: ()
