"""Reads the settings of bananaq from command line, environment and file, and writes the file.

Owns the precedence: the command line overrides the environment, that overrides the file, and that
overrides the defaults. The file is YAML, with any name, and one ``name: value`` per line. All
errors are reported together. The texts of ``--help`` and ``--example`` are in ``option_texts``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path

from disque_bananaq.settings import REDIS, TABLE, BananaSettings
from disque_trio.config.edits import Setting
from disque_trio.config.errors import BadValue, ConfigError, ConfigErrors
from disque_trio.config.load import COMMAND_LINE, evaluate
from disque_trio.config.params import Param, unknown_parameter
from disque_trio.config.rewrite import rewritten
from disque_trio.config.words import to_bytes, to_text
from disque_trio.disk import replace_file
from disque_trio.form import form
from disque_trio.version import VERSION

PREFIXES = ("bananaq_", "BANANAQ_")  # the last one wins
_TLS_OF_REDIS = ("redis-tls-ca-cert-file", "redis-tls-cert-file", "redis-tls-key-file")
_YES_NO = {"true": "yes", "on": "yes", "false": "no", "off": "no", "yes": "yes", "no": "no"}


class Exit(Exception):
    """The command line asks for a text instead of a server. ``text`` is what to print."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def settings_or_exit(
    argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> BananaSettings:
    """Return the settings that the process was started with.

    Raises SystemExit: with 0 after printing a text that was asked for, with 2 after printing all
    errors on standard error, one per line.
    """
    try:
        return parse(
            sys.argv[1:] if argv is None else argv, os.environ if environ is None else environ
        )
    except Exit as wanted:
        print(wanted.text, end="")
        raise SystemExit(0) from None
    except ConfigErrors as problems:
        for problem in problems.errors:
            print(f"bananaq: {problem}", file=sys.stderr)
        raise SystemExit(2) from None


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> BananaSettings:
    """Return the settings from these arguments and this environment.

    Relative paths are relative to the current directory.

    Raises:
        Exit: for --help, --version and --example.
        ConfigErrors: has all errors, including that the file cannot be read.
    """
    errors: list[ConfigError] = []
    given = _arguments(argv, errors)
    if given.text is not None:
        raise Exit(given.text)
    path, overriding = given.config, given.settings
    for prefix in reversed(PREFIXES):
        if path is None:
            path = environ.get(f"{prefix}CONFIG") or None
    variables = _environment(environ, errors)
    file = [] if path is None else _read(path, errors)
    overriding = variables + _implied([file, variables, overriding]) + overriding
    values = evaluate(TABLE, [*file, *overriding], errors)
    settings = BananaSettings(values, file=None if path is None else str(Path(path).absolute()))
    _check(settings, [*file, *overriding])
    plain = BananaSettings(evaluate(TABLE, file, []))
    settings.below = {setting.name: plain.get(setting.name) for setting in overriding}
    settings.started_in = str(Path.cwd())
    settings.warnings = _warnings(settings, overriding)
    return settings


def rewrite(settings: BananaSettings) -> None:
    """Carry out CONFIG REWRITE: write the settings into the file named by --config.

    Keeps comments, order, and all lines that still mean the same. Values from the command line or
    the environment are not written, unless changed by CONFIG SET since. The file is replaced
    atomically.

    Raises:
        ConfigError: there is no file (the text is the error reply), or it cannot be edited.
        OSError: the file cannot be read or written.
    """
    from disque_trio.config.yaml_format import read_yaml

    if settings.file is None:
        raise ConfigError("ERR The server is running without a config file")
    path = Path(settings.file)
    with chdir(settings.started_in or "."):
        try:
            text = to_text(path.read_bytes())
        except FileNotFoundError:
            text = ""  # the operator removed it: write all values that differ from the defaults
        wanted = settings.written()
        wanted.file = "bananaq.yaml"  # any name that implies the syntax will do
        try:
            new = rewritten(wanted, text)
            again = BananaSettings(evaluate(TABLE, read_yaml(new, settings.file, TABLE, []), []))
        except ConfigError as error:
            raise ConfigError(
                error.reason, file=settings.file, line=error.line, setting=error.setting
            ) from error
        if again != wanted:
            raise ConfigError("cannot be rewritten", file=settings.file)
        replace_file(settings.file, to_bytes(new))


class _Given:
    """The contents of the command line."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.config: str | None = None
        self.text: str | None = None


def _arguments(argv: Sequence[str], errors: list[ConfigError]) -> _Given:
    given = _Given()
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        name = name[2:].lower()
        if argument in ("-h", "--help"):
            from disque_bananaq.option_texts import usage

            given.text = usage()
        elif argument in ("-V", "--version"):
            python = sys.version.split()[0]
            given.text = f"bananaq of disque-trio {VERSION}, {form()} (Python {python})\n"
        elif argument == "--example":
            from disque_bananaq.option_texts import example

            given.text = example()
        elif not argument.startswith("--"):
            reason = f"expected --name value or --name=value, got {argument!r}"
            errors.append(ConfigError(reason, file=COMMAND_LINE))
        else:
            words = [value] if equals else _words_of(name, rest)
            _take(given, name, words, bool(equals), errors)
        if given.text is not None:
            return given
    return given


def _implied(levels: Sequence[Sequence[Setting]]) -> list[Setting]:
    """Return the setting implied by the address of a Redis: use that Redis as the store, unless
    the same level or a later one sets ``store``."""
    for level in reversed(levels):
        names = {setting.name for setting in level}
        if "store" in names:
            return []
        for setting in level:
            if setting.name in ("redis-addr", "redis-cluster") and setting.words != ["no"]:
                return [Setting("store", ["redis"], setting.file, setting.line)]
    return []


def _words_of(name: str, rest: list[str]) -> list[str]:
    """Remove the words that belong to ``--name`` from ``rest`` and return them."""
    param = TABLE.get(name)
    if param is not None and param.type.boolean:
        # A switch may stand alone or be followed by its value.
        return [rest.pop(0)] if rest and _is_value(param, rest[0]) else ["yes"]
    words: list[str] = []
    several = param is not None and param.type.several
    while rest and not rest[0].startswith("--") and (several or not words):
        words.append(rest.pop(0))
    return words


def _is_value(param: Param, word: str) -> bool:
    if word.lower() in _YES_NO:
        return True
    try:
        param.parse([word])
    except BadValue:
        return False
    return True


def _take(
    given: _Given, name: str, words: list[str], one_text: bool, errors: list[ConfigError]
) -> None:
    """Add what the command line says about ``name``."""
    if not words:
        setting = name or "--"
        known = name == "config" or name in TABLE
        reason = "expected a value after it" if known else unknown_parameter(TABLE, name)
        errors.append(ConfigError(reason, file=COMMAND_LINE, setting=setting))
    elif name == "config":
        given.config = words[0]
    elif one_text or len(words) == 1:
        _override(given.settings, name, words[0], COMMAND_LINE, errors)
    else:
        given.settings.append(Setting(name, words, COMMAND_LINE, 0))


def _environment(environ: Mapping[str, str], errors: list[ConfigError]) -> list[Setting]:
    """Return the settings in the environment.

    Variables with other names are ignored, since they may not be meant for bananaq: a container
    called bananaq has a BANANAQ_PORT, for example.
    """
    settings: list[Setting] = []
    for name in TABLE:
        for prefix in reversed(PREFIXES):
            variable = prefix + name.upper().replace("-", "_")
            if variable in environ:
                _override(settings, name, environ[variable], f"environment {variable}", errors)
                break
    return settings


def _override(
    settings: list[Setting], name: str, text: str, place: str, errors: list[ConfigError]
) -> None:
    """Add a setting given as one text."""
    param = TABLE.get(name)
    if param is None:
        words = [text]
    elif param.type.boolean:
        words = [_YES_NO.get(text.lower(), text)]
    else:
        try:
            words = param.split(text)
        except BadValue as error:
            reason = f"expected {param.type.expected}, got {text!r} ({error.reason})"
            errors.append(ConfigError(reason, file=place, setting=name))
            return
    settings.append(Setting(name, words, place, 0))


def _read(path: str, errors: list[ConfigError]) -> list[Setting]:
    """Return the settings in the file."""
    from disque_trio.config.yaml_format import read_yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        errors.append(ConfigError(error.strerror or str(error), file=path))
        return []
    except ValueError as error:
        reason = "not valid UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        errors.append(ConfigError(reason, file=path))
        return []
    return read_yaml(text, path, TABLE, errors)


def _check(settings: BananaSettings, given: Sequence[Setting]) -> None:
    """Refuse settings that contradict each other. Raises ConfigErrors."""
    errors: list[ConfigError] = []
    if settings.redis_cluster and settings.redis_db:
        errors.append(_about("redis-db", "a cluster has only database 0", given))
    if len(settings.redis_addr) > 1 and not settings.redis_cluster and not settings.redis_service:
        errors.append(_about("redis-addr", "only a cluster may have several", given))
    if settings.redis_cluster and settings.redis_service:
        errors.append(_about("redis-service", "a cluster has no sentinels", given))
    if settings.redis_tls_key_file and not settings.redis_tls_cert_file:
        errors.append(_about("redis-tls-key-file", "needs redis-tls-cert-file", given))
    if errors:
        raise ConfigErrors(errors)


def _about(name: str, reason: str, given: Sequence[Setting]) -> ConfigError:
    """Return an error that points to where the parameter got its value."""
    *_, last = (setting for setting in given if setting.name == name)
    return ConfigError(reason, file=last.file, line=last.line or None, setting=name)


def _warnings(settings: BananaSettings, overriding: Sequence[Setting]) -> list[str]:
    """Warn about options for Redis, or for TLS with it, that have no effect."""
    if settings.store == "redis":
        named = [name for name in _TLS_OF_REDIS if settings.get(name)]
        unused = [] if settings.redis_tls else named
        return [f"{name} has no effect without redis-tls yes" for name in unused]
    names = [
        name
        for name in dict.fromkeys(setting.name for setting in overriding)
        if TABLE[name].section == REDIS
    ]
    return [f"{name} has no effect without store redis" for name in names]
