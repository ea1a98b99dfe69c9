"""disque.conf syntax: reading its lines, and editing them for CONFIG REWRITE.

Knows the line format (``name value...``, ``#`` comments on lines of their own), but not what the
names mean. Both directions work on text; ``load`` and ``rewrite`` handle the files.
"""

from __future__ import annotations

from collections.abc import Sequence

from disque_trio.config.edits import GENERATED, Change, Setting
from disque_trio.config.errors import ConfigError
from disque_trio.config.params import Param
from disque_trio.config.words import quote_word, split_words

_BLANK = " \t\r\n"


def read_conf(text: str, file: str, errors: list[ConfigError]) -> list[Setting]:
    """Return the settings of a file in disque.conf syntax; errors are appended to ``errors``."""
    settings = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip(_BLANK)
        if not line or line.startswith("#"):
            continue
        try:
            name, *words = split_words(line)
        except ValueError as error:
            errors.append(ConfigError(f"{error} in {line!r}", file=file, line=number))
            continue
        if not words:
            errors.append(
                ConfigError("expected a value after it", file=file, line=number, setting=name)
            )
            continue
        settings.append(Setting(name.lower(), words, file, number))
    return settings


def is_generated(text: str, line: int) -> bool:
    """Tell whether the line (from 1) comes after the mark that REWRITE sets."""
    return any(before.strip(_BLANK) == GENERATED for before in text.split("\n")[: line - 1])


def edit_conf(text: str, changes: Sequence[Change]) -> str:
    """Apply the changes to the text; all other lines stay as they are, to the byte."""
    ending = "\r\n" if "\r\n" in text else "\n"
    lines: list[str | None] = list(text.split("\n"))
    if lines[-1] == "":
        lines.pop()
    added = []
    for change in changes:
        if change.at is None:
            added += [_line(change.param, words) for words in change.lines]
        elif change.lines:
            lines[change.at.line - 1] = _line(change.param, change.lines[0]) + ending[:-1]
        else:
            lines[change.at.line - 1] = None
    kept = [line for line in lines if line is not None]
    if added:
        if kept and not kept[-1].endswith(ending[:-1]):
            kept[-1] += ending[:-1]
        if not any(line.strip(_BLANK) == GENERATED for line in kept):
            added.insert(0, GENERATED)
        kept += [line + ending[:-1] for line in added]
    return "".join(line + "\n" for line in kept)


def _line(param: Param, words: Sequence[str]) -> str:
    return " ".join([param.name, *(quote_word(word, always=param.type.quoted) for word in words)])
