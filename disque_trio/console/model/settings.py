"""The settings of nodes (CONFIG GET): what they mean, and where nodes differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_trio.config.params import Param
from disque_trio.config.table import SECTIONS, TABLE
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import pairs, text

OTHERS: Final = "Others"
"""The section of settings that this version does not know."""

_SECRET_WORDS: Final = ("pass", "secret", "auth", "key")
OF_ONE_NODE: Final = frozenset(
    {"port", "tls-port", "bind", "dir", "unixsocket", "pidfile", "logfile", "aclfile"}
)
"""Settings that are meant to differ."""


def is_secret(name: str) -> bool:
    """Whether the values of a setting are shown to nobody."""
    param = TABLE.get(name.lower())
    if param is not None:
        return param.secret or param.masked
    return any(word in name.lower() for word in _SECRET_WORDS)


@dataclass(slots=True)
class Setting:
    """A setting. values: by the address of the node; those of secrets are not told to pages."""

    name: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def param(self) -> Param | None:
        """What is known of it; None: this version does not know it."""
        return TABLE.get(self.name)

    @property
    def secret(self) -> bool:
        """Whether nobody is shown its values."""
        return is_secret(self.name)

    @property
    def section(self) -> str:
        """Where it belongs."""
        return self.param.section if self.param else OTHERS

    @property
    def help(self) -> str:
        """What it means."""
        return self.param.help if self.param else "This version of the console does not know it."

    @property
    def settable(self) -> bool:
        """Whether CONFIG SET takes it; of what is not known that is not known either."""
        return self.param is None or self.param.settable

    @property
    def differs(self) -> bool:
        """Whether nodes have different values."""
        return len(set(self.values.values())) > 1

    @property
    def expected(self) -> bool:
        """Whether nodes are meant to differ."""
        return self.name in OF_ONE_NODE

    def shown(self, address: str) -> str:
        """The value of a node, for people; of a secret just whether there is one."""
        value = self.values.get(address)
        if value is None:
            return "not told"
        if self.secret:
            return "set, not shown" if value else "not set"
        return value

    def is_default(self, address: str) -> bool:
        """Whether the value of a node is the default, as far as its text tells."""
        param, value = self.param, self.values.get(address)
        if param is None or value is None or self.secret:
            return False
        try:
            return param.told(param.default_value()) == value
        except (ValueError, OSError):
            return False


def read(answers: Iterable[tuple[str, Reply]]) -> Mapping[str, Setting]:
    """What CONFIG GET said on some nodes, by name, in the order of the table.

    Raises:
        ProtocolError: an answer is none of CONFIG GET.
    """
    found: dict[str, Setting] = {}
    for address, reply in answers:
        for name, value in pairs(reply):
            found.setdefault(name, Setting(name)).values[address] = text(value)
    known = [name for name in TABLE if name in found]
    return {name: found[name] for name in [*known, *sorted(found.keys() - TABLE.keys())]}


def sections(
    settings: Mapping[str, Setting], search: str, only_different: bool
) -> list[tuple[str, str, Sequence[Setting]]]:
    """The sections that have something with ``search`` in its name or meaning: the title, what it
    says, and the settings."""
    wanted = search.lower()
    found: list[tuple[str, str, Sequence[Setting]]] = []
    for title, about in {**SECTIONS, OTHERS: ""}.items():
        rows = [
            row
            for row in settings.values()
            if row.section == title
            and (wanted in row.name.lower() or wanted in row.help.lower())
            and (not only_different or (row.differs and not row.expected))
        ]
        if rows:
            found.append((title, about, rows))
    return found
