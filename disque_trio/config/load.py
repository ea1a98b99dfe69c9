"""Loads a configuration from files and the command line.

Included files come first, then the file, then the command line; later settings override earlier
ones. All errors are reported together, with file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from disque_trio.config.conf_format import read_conf
from disque_trio.config.edits import Setting
from disque_trio.config.errors import BadValue, ConfigError, ConfigErrors
from disque_trio.config.params import Table, unknown_parameter
from disque_trio.config.settings import Settings
from disque_trio.config.types import Includes
from disque_trio.config.words import ENCODING, ERRORS, join_words

COMMAND_LINE = "command line"
STANDARD_INPUT = "standard input"

S = TypeVar("S", bound=Settings)


def is_yaml(kind: type[Settings], path: str) -> bool:
    """Tell the format by the extension, unless all files of a program have one: .yaml and .yml are
    YAML, the rest is disque.conf syntax."""
    return kind.only_yaml or Path(path).suffix.lower() in (".yaml", ".yml")


def load_settings(kind: type[S], path: str | None, overrides: Iterable[tuple[str, str]] = ()) -> S:
    """Load the configuration of a program.

    Args:
        kind: the class of the settings, with their table.
        path: a file, in YAML if it ends in .yaml or .yml, otherwise in disque.conf syntax; None
            for the defaults.
        overrides: from ``parse_arguments``; they override the file.

    Raises:
        ConfigErrors: with everything that is wrong, even if the file cannot be read.
    """
    errors: list[ConfigError] = []
    settings = [] if path is None else read_file(kind, path, errors)
    values = evaluate(kind.table, settings, errors, overrides)
    file = None if path is None else str(Path(path).absolute())
    return kind(values, file=file, started_in=str(Path.cwd()))


def load_settings_text(kind: type[S], text: str, overrides: Iterable[tuple[str, str]] = ()) -> S:
    """Load text in disque.conf syntax, as from standard input. Raises ``ConfigErrors``."""
    errors: list[ConfigError] = []
    settings = read_text(kind, text, STANDARD_INPUT, errors)
    values = evaluate(kind.table, settings, errors, overrides)
    return kind(values, started_in=str(Path.cwd()))


def check_settings_file(kind: type[Settings], path: str) -> list[ConfigError]:
    """Return everything that is wrong with a file; empty if it loads."""
    try:
        load_settings(kind, path)
    except ConfigErrors as error:
        return error.errors
    return []


def read_file(
    kind: type[Settings],
    path: str,
    errors: list[ConfigError],
    above: tuple[str, ...] = (),
    origin: Setting | None = None,
) -> list[Setting]:
    """Return the settings of a file and of those it includes, in the order of effect. ``origin``:
    the line that includes it, in the last of the files ``above``."""
    file, line = (path, None) if origin is None else (origin.file, origin.line)
    setting = None if origin is None else origin.name
    try:
        if _identity(path) in above:
            reason = f"{path} includes itself"
            errors.append(ConfigError(reason, file=file, line=line, setting=setting))
            return []
        data = Path(path).read_bytes()
        # YAML is Unicode; in disque.conf a password may have any bytes.
        text = data.decode(ENCODING, "strict" if is_yaml(kind, path) else ERRORS)
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}" if origin else f"{error.strerror}"
        errors.append(ConfigError(reason, file=file, line=line, setting=setting))
        return []
    except UnicodeDecodeError as error:
        bad_line = data.count(b"\n", 0, error.start) + 1
        errors.append(ConfigError("not valid UTF-8", file=path, line=bad_line))
        return []
    except ValueError as error:  # a zero byte in the name
        errors.append(ConfigError(str(error), file=file, line=line, setting=setting))
        return []
    return read_text(kind, text, path, errors, above)


def read_text(
    kind: type[Settings],
    text: str,
    path: str,
    errors: list[ConfigError],
    above: tuple[str, ...] = (),
) -> list[Setting]:
    """Like ``read_file``, for the text that the file has or is going to have."""
    table = kind.table
    if is_yaml(kind, path):
        # Imported here, since PyYAML is slow to load and many nodes have no file in YAML.
        from disque_trio.config.yaml_format import read_yaml

        found = read_yaml(text, path, table, errors)
    else:
        found = read_conf(text, path, errors)
    settings = []
    for setting in found:
        param = table.get(setting.name)
        if param is None or not isinstance(param.type, Includes):
            settings.append(setting)
            continue
        try:
            included = param.parse(setting.words)
        except BadValue as error:
            errors.append(_bad_value(table, setting, error))
            continue
        for name in included:
            inner = str(Path(path).parent / name)
            settings += read_file(kind, inner, errors, (*above, _identity(path)), setting)
    return settings


def _identity(path: str) -> str:
    return str(Path(path).resolve())


def evaluate(
    table: Table,
    settings: Sequence[Setting],
    errors: list[ConfigError],
    overrides: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Return the values that result from the settings, then the overrides. Raises ``ConfigErrors``.

    ``errors``: found while reading; everything that is wrong is raised together.
    """
    values: dict[str, Any] = {}
    for setting in chain(settings, _from_command_line(table, overrides, errors)):
        param = table.get(setting.name)
        if param is None:
            reason = unknown_parameter(table, setting.name)
            errors.append(_error(setting, reason))
            continue
        try:
            value = param.parse(setting.words)
        except BadValue as error:
            errors.append(_bad_value(table, setting, error))
            continue
        if setting.name in values:
            value = param.type.merge(values[setting.name], value)
        values[setting.name] = value
    if errors:
        files = list(dict.fromkeys(error.file for error in errors))
        errors.sort(key=lambda error: (files.index(error.file), error.line or 0))
        raise ConfigErrors(errors)
    return values


def _from_command_line(
    table: Table, overrides: Iterable[tuple[str, str]], errors: list[ConfigError]
) -> Iterator[Setting]:
    for raw_name, text in overrides:
        name = raw_name.lower()
        param = table.get(name)
        setting = Setting(name, [text], COMMAND_LINE, 0)
        if param is not None and not param.stored:
            errors.append(_error(setting, "only a file can have it"))
            continue
        try:
            yield setting if param is None else setting._replace(words=param.split(text))
        except BadValue as error:
            errors.append(_bad_value(table, setting, error))


def parse_arguments(table: Table, argv: Sequence[str]) -> list[tuple[str, str]]:
    """Parse ``--port 7712 --loglevel=verbose --bind 127.0.0.1 ::1`` into overrides for
    ``load_settings``.

    Raises ``ConfigErrors`` for anything that is not such a pair, for unknown names, and for more
    values than the parameter accepts; the loader checks the values themselves.
    """
    errors: list[ConfigError] = []
    groups: list[tuple[str, list[str]]] = []
    for argument in argv:
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            groups.append((name.lower(), [value] if equals else []))
        elif groups:
            groups[-1][1].append(argument)
        else:
            reason = f"expected --name value, got {argument!r}"
            errors.append(ConfigError(reason, file=COMMAND_LINE))
    overrides = []
    for name, words in groups:
        param = table.get(name)
        setting = Setting(name, words, COMMAND_LINE, 0)
        if param is None:
            errors.append(_error(setting, unknown_parameter(table, name)))
        elif not words:
            errors.append(_error(setting, "expected a value after it", param.type.expected))
        elif not param.type.several and len(words) > 1:
            errors.append(_bad_value(table, setting, BadValue()))
        elif param.type.several and len(words) > 1:
            overrides.append((name, join_words(words)))
        else:
            overrides.append((name, words[0]))
    if errors:
        raise ConfigErrors(errors)
    return overrides


def _bad_value(table: Table, setting: Setting, error: BadValue) -> ConfigError:
    param = table[setting.name]
    expected = param.type.expected
    got = repr(" ".join(setting.words)) if setting.words else "nothing"
    if setting.words:
        got = param.got(got)
    because = f" ({error.reason})" if error.reason else ""
    if any(word.startswith("#") for word in setting.words[1:]):
        because = " (a comment needs a line of its own)"
    return _error(setting, f"expected {expected}, got {got}{because}", expected)


def _error(setting: Setting, reason: str, expected: str | None = None) -> ConfigError:
    return ConfigError(
        reason,
        file=setting.file,
        line=setting.line or None,
        setting=setting.name,
        expected=expected,
    )
