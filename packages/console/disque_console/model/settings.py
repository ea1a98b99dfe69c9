"""The settings of nodes (CONFIG GET), their descriptions, and differences between nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_trio.config.params import Param
from disque_trio.config.table import SECTIONS, TABLE
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import pairs, text

OTHERS: Final = "Others"
"""The section for settings unknown to this version."""

_SECRET_WORDS: Final = ("pass", "secret", "auth", "key")
OF_ONE_NODE: Final = frozenset(
    {
        "port",
        "tls-port",
        "metrics-port",
        "bind",
        "dir",
        "unixsocket",
        "pidfile",
        "logfile",
        "aclfile",
    }
)
"""Settings that should differ between nodes."""


def is_secret(name: str) -> bool:
    """Whether the values of a setting must never be shown."""
    param = TABLE.get(name.lower())
    if param is not None:
        return param.secret or param.masked
    return any(word in name.lower() for word in _SECRET_WORDS)


@dataclass(slots=True)
class Setting:
    """A setting. values: by the address of the node; pages must not show those of secrets."""

    name: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def param(self) -> Param | None:
        """Its definition; None if this version does not know it."""
        return TABLE.get(self.name)

    @property
    def secret(self) -> bool:
        """Whether its values must never be shown."""
        return is_secret(self.name)

    @property
    def section(self) -> str:
        """The section that it belongs to."""
        return self.param.section if self.param else OTHERS

    @property
    def help(self) -> str:
        """Its description."""
        return self.param.help if self.param else "Unknown to this version of the console."

    @property
    def settable(self) -> bool:
        """Whether CONFIG SET can change it; assumed for unknown settings."""
        return self.param is None or self.param.settable

    @property
    def differs(self) -> bool:
        """Whether its values differ between nodes."""
        return len(set(self.values.values())) > 1

    @property
    def expected(self) -> bool:
        """Whether its values should differ between nodes."""
        return self.name in OF_ONE_NODE

    def shown(self, address: str) -> str:
        """The value on a node, for display; for a secret, only whether it is set."""
        value = self.values.get(address)
        if value is None:
            return "unknown"
        if self.secret:
            return "set (hidden)" if value else "not set"
        return value

    def is_default(self, address: str) -> bool:
        """Whether the value on a node is the default, judging by its text."""
        param, value = self.param, self.values.get(address)
        if param is None or value is None or self.secret:
            return False
        try:
            return param.told(param.default_value()) == value
        except (ValueError, OSError):
            return False


def read(answers: Iterable[tuple[str, Reply]]) -> Mapping[str, Setting]:
    """Read nodes' replies to CONFIG GET: settings by name, in the order of the table.

    Raises:
        ProtocolError: a reply is not one to CONFIG GET.
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
    """The sections with settings that have ``search`` in their name or description: title, text and
    settings."""
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
