"""Parameters: the rows of a configuration table.

Has ``Param`` (one row) and the rules for every row: how words become a value, and errors for
unknown names. A program brings its own table; this module knows no names.
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
        name: in the files, in CONFIG and, after ``--``, on the command line.
        type: what it accepts.
        default: the default as in a file; for a list, the words in one text.
        help: one or two sentences for the operator.
        section: the heading under which it is documented.
        unit: of a bare number ("seconds"); empty if it has none or the type says it.
        settable: CONFIG SET accepts it.
        protected: CONFIG SET accepts it only from clients that ``enable-protected-configs`` allows.
        reread: names a file, which SET to the same path reads again. Every client may do that, even
            if it is ``protected`` against other paths.
        immutable: CONFIG SET refuses it in Redis's words; for other names that it does not accept,
            it says that they are unknown, like Disque.
        file_only: CONFIG GET does not show it.
        secret: no error and no log shows its value.
        masked: nor does CONFIG GET, which only says whether it is set.
        always_rewritten: REWRITE writes it even if it is the default.
        needs: settings without which turning this one on has no effect, so that CONFIG SET refuses
            to.
        attribute: its name in the configuration object; derived from the name if empty.
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
    needs: tuple[str, ...] = ()
    attribute: str = ""

    def __post_init__(self) -> None:
        if not self.attribute:
            object.__setattr__(self, "attribute", self.name.replace("-", "_"))

    def parse(self, words: Sequence[str]) -> Any:
        """Return the value of these words; raises ``BadValue``."""
        return self.type.parse(words)

    def parse_text(self, text: str) -> Any:
        """Return the value of a single text, as in CONFIG SET; raises ``BadValue``."""
        return self.parse(self.split(text))

    def split(self, text: str) -> list[str]:
        """Split one text into words; raises ``BadValue``."""
        if not self.type.several:
            return [text]
        try:
            return split_words(text)
        except ValueError as error:
            raise BadValue(str(error)) from error

    def default_value(self) -> Any:
        """Return the default as a value (``dir`` depends on the current directory)."""
        return self.parse_text(self.default)

    def got(self, text: str) -> str:
        """Return ``text``, which it does not accept, for an error."""
        return "(redacted)" if self.secret else text

    def told(self, value: Any) -> str:
        """Return the text that CONFIG GET replies."""
        text = self.type.show(value)
        return "(redacted)" if self.masked and text else text

    @property
    def stored(self) -> bool:
        """Whether the configuration object has it; reading the file consumes ``include``."""
        return not isinstance(self.type, Includes)


Table = Mapping[str, Param]


def make_table(params: Sequence[Param]) -> Table:
    """Index the parameters by name, in order. Raises ``ValueError`` if a name occurs twice."""
    table = {param.name: param for param in params}
    if len(table) != len(params):
        raise ValueError("a parameter is in the table twice")
    return table


def unknown_parameter(table: Table, name: str) -> str:
    """Return the error for an unknown name, with a known one that is similar."""
    import difflib

    near = difflib.get_close_matches(name.lower(), table, 1)
    return f"unknown parameter, did you mean {near[0]}?" if near else "unknown parameter"
