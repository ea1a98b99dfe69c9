"""Reads the settings of bananaq from command line, environment and file.

Owns the precedence: the command line overrides the environment, that overrides the file, and that
overrides the defaults. The file is YAML, with any name, and one ``name: value`` per line. All
errors are reported together. The texts of ``--help`` and ``--example`` are in ``option_texts``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from disque_bananaq.settings import REDIS, TABLE, BananaSettings
from disque_trio.config.edits import Setting
from disque_trio.config.errors import BadValue, ConfigError, ConfigErrors
from disque_trio.config.load import COMMAND_LINE, evaluate, read_file
from disque_trio.config.params import unknown_parameter
from disque_trio.form import form
from disque_trio.version import VERSION

PREFIXES = ("BANANAQ_", "bananaq_")  # the first one wins
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
    path, arguments = _arguments(argv, errors)
    for prefix in PREFIXES:
        path = (environ.get(f"{prefix}CONFIG") or None) if path is None else path
    variables = _environment(environ, errors)
    file = [] if path is None else read_file(BananaSettings, path, errors)
    overriding = [*variables, *_implied([file, variables, arguments]), *arguments]
    values = evaluate(TABLE, [*file, *overriding], errors)
    absolute = None if path is None else str(Path(path).absolute())
    settings = BananaSettings(values, file=absolute, started_in=str(Path.cwd()))
    _check(settings, [*file, *overriding])
    plain = BananaSettings(evaluate(TABLE, file, []))
    settings.below = {setting.name: plain.get(setting.name) for setting in overriding}
    settings.warnings = _warnings(settings, overriding)
    return settings


def _arguments(argv: Sequence[str], errors: list[ConfigError]) -> tuple[str | None, list[Setting]]:
    """Return the file that the command line names, and its settings. Raises Exit."""
    path: str | None = None
    settings: list[Setting] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.lower()
        if argument in _TEXTS:
            raise Exit(_TEXTS[argument]())
        if not argument.startswith("--"):
            reason = f"expected --name value or --name=value, got {argument!r}"
            errors.append(ConfigError(reason, file=COMMAND_LINE))
        elif not (words := [value] if equals else _words_of(name, rest)):
            known = name == "config" or name in TABLE
            reason = "expected a value after it" if known else unknown_parameter(TABLE, name)
            errors.append(ConfigError(reason, file=COMMAND_LINE, setting=name or "--"))
        elif name == "config":
            path = words[0]
        else:
            settings += _setting(name, words, COMMAND_LINE, errors)
    return path, settings


def _help() -> str:
    from disque_bananaq.option_texts import usage

    return usage()


def _version() -> str:
    build, python = form("disque_bananaq.core.records"), sys.version.split()[0]
    return f"bananaq of disque-trio {VERSION}, {build} (Python {python})\n"


def _example() -> str:
    from disque_bananaq.option_texts import example

    return example()


_TEXTS: dict[str, Callable[[], str]] = {
    "-h": _help,
    "--help": _help,
    "-V": _version,
    "--version": _version,
    "--example": _example,
}


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
        try:
            param.parse([_YES_NO.get(rest[0].lower(), rest[0])])
        except (BadValue, IndexError):
            return ["yes"]
        return [rest.pop(0)]
    words: list[str] = []
    several = param is not None and param.type.several
    while rest and not rest[0].startswith("--") and (several or not words):
        words.append(rest.pop(0))
    return words


def _environment(environ: Mapping[str, str], errors: list[ConfigError]) -> list[Setting]:
    """Return the settings in the environment.

    Variables with other names are ignored, since they may not be meant for bananaq: a container
    called bananaq has a BANANAQ_PORT, for example.
    """
    settings: list[Setting] = []
    for name in TABLE:
        for prefix in PREFIXES:
            variable = prefix + name.upper().replace("-", "_")
            if variable in environ:
                place = f"environment {variable}"
                settings += _setting(name, [environ[variable]], place, errors)
                break
    return settings


def _setting(name: str, words: list[str], place: str, errors: list[ConfigError]) -> list[Setting]:
    """Return the setting that is given as these words, or as one text; nothing if that is wrong."""
    param = TABLE.get(name)
    if param is not None and len(words) == 1:
        if param.type.boolean:
            words = [_YES_NO.get(words[0].lower(), words[0])]
        try:
            words = param.split(words[0])
        except BadValue as error:
            reason = f"expected {param.type.expected}, got {words[0]!r} ({error.reason})"
            errors.append(ConfigError(reason, file=place, setting=name))
            return []
    return [Setting(name, words, place, 0)]


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
