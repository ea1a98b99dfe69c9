"""Parameters: the rows of a configuration table.

Owns ``Param`` (one row) and the rules that hold for every row: how words become a value, and what a
version does not support. A program brings its own table; nothing here knows a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disque_trio.config.errors import BadValue
from disque_trio.config.types import Includes, ParamType
from disque_trio.config.words import split_words


@dataclass(frozen=True)
class Param:
    """One parameter.

    Attributes:
        name: as in the files, in CONFIG and, with ``--`` before it, on the command line.
        type: what it takes.
        default: the default as it would stand in a file; for a list the words in one text.
        help: one or two sentences for the operator.
        section: the heading it is documented under.
        unit: of a bare number ("seconds"); empty where it has none or the type says it.
        settable: CONFIG SET takes it.
        protected: CONFIG SET takes it only from those whom ``enable-protected-configs`` lets.
        reread: names a file, which SET to the same path reads again. That is open to all, even
            where ``protected`` keeps them from another path.
        immutable: CONFIG SET refuses it in Redis's words; to other names that it does not take
            it says that it does not know them, as Disque does.
        file_only: CONFIG GET does not show it.
        secret: no error and no log shows its value.
        masked: nor does CONFIG GET, which says only whether it is set.
        always_rewritten: REWRITE writes it whether it is the default or not.
        attribute: its name on the configuration object; made from the name when empty.
    """

    name: str
    type: ParamType[Any]
    default: str
    help: str
    section: str
    unit: str = ""
    settable: bool = False
    protected: bool = False
    reread: bool = False
    immutable: bool = False
    file_only: bool = False
    secret: bool = False
    masked: bool = False
    always_rewritten: bool = False
    attribute: str = ""

    def __post_init__(self) -> None:
        if not self.attribute:
            object.__setattr__(self, "attribute", self.name.replace("-", "_"))

    def parse(self, words: Sequence[str]) -> Any:
        """Give the value of these words; raises BadValue."""
        return self.type.parse(words)

    def parse_text(self, text: str) -> Any:
        """Give the value of one text, as CONFIG SET has it; raises BadValue."""
        return self.parse(self.split(text))

    def split(self, text: str) -> list[str]:
        """Give the words of one text; raises BadValue."""
        if not self.type.several:
            return [text]
        try:
            return split_words(text)
        except ValueError as error:
            raise BadValue(str(error)) from error

    def default_value(self) -> Any:
        """Give the default as a value (``dir`` depends on the current directory)."""
        return self.parse_text(self.default)

    def got(self, text: str) -> str:
        """Give ``text``, which it does not take, for an error."""
        return "(redacted)" if self.secret else text

    def told(self, value: Any) -> str:
        """Give the text that CONFIG GET answers with."""
        text = self.type.show(value)
        return "(redacted)" if self.masked and text else text

    @property
    def stored(self) -> bool:
        """Whether the configuration object holds it; ``include`` is used up by reading the file."""
        return not isinstance(self.type, Includes)


Table = Mapping[str, Param]


def make_table(params: Sequence[Param]) -> Table:
    """Index the parameters by name, in order. Raises ValueError when a name comes twice."""
    table = {param.name: param for param in params}
    if len(table) != len(params):
        raise ValueError("a parameter is in the table twice")
    return table


def unknown_parameter(table: Table, name: str) -> str:
    """Say that the name is unknown and which known one it looks like."""
    import difflib

    near = difflib.get_close_matches(name.lower(), table, 1)
    return f"unknown parameter, did you mean {near[0]}?" if near else "unknown parameter"
