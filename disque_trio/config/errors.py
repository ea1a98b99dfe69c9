"""The errors of a configuration, worded so that an operator can fix it.

Has the exceptions of the package. They tell where the bad setting is and what was expected there;
the other modules raise or collect them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass


class BadValue(ValueError):
    """A value that a parameter does not accept. Contains a reason if ``expected`` does not say
    enough."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(eq=False, repr=False)
class ConfigError(Exception):
    """One bad setting, or a configuration that cannot be read or written.

    ``str()`` gives one complete line: ``FILE:LINE: SETTING: reason`` for a file or the command
    line, and the exact text of the error reply (``ERR ...``) for CONFIG SET and CONFIG REWRITE.

    Attributes:
        reason: the message without its place.
        file: the file as the operator named it, "command line", or None for a command.
        line: the line in that file, from 1, or None.
        setting: the name of the parameter as written, or None.
        expected: what the parameter accepts ("an integer from 1 to 500"), or None.
    """

    reason: str
    _: KW_ONLY
    file: str | None = None
    line: int | None = None
    setting: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.reason
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        about = "" if self.setting is None else f"{self.setting}: "
        return f"{place}: {about}{self.reason}"


class ConfigErrors(ConfigError):
    """All errors of a configuration: ``errors`` lists them in order, at least one.

    The attributes are those of the first error; ``str()`` gives one line per error.
    """

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(**vars(errors[0]))
        self.errors = list(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)
