"""The configuration of a running program: values, CONFIG GET and CONFIG SET.

Has ``Settings``, which a program subclasses with its own table. It does no I/O: the server gets the
changed names from ``config_set``, and applies them to sockets, logs or limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

from disque_trio.config.errors import BadValue, ConfigError
from disque_trio.config.params import Param, Table
from disque_trio.config.words import to_bytes, to_text
from disque_trio.glob import Glob


class Settings:
    """Has one attribute per parameter of ``table``, with the value in its own type.

    A subclass sets ``table`` and declares the attributes, so that type checkers know them. Only
    ``config_set`` changes values, and ``put`` those that clients cannot change. Two objects are
    equal if all their values are.

    Attributes:
        file: absolute path of the file it was loaded from, None without one.
        started_in: the directory that relative paths in it are relative to; empty: the current one.
    """

    table: ClassVar[Table] = {}
    only_yaml: ClassVar[bool] = False  # its file is YAML, whatever its name
    file: str | None

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        file: str | None = None,
        started_in: str = "",
    ) -> None:
        """Use ``values`` (by parameter name, in their own types), and defaults for the rest."""
        self.file = file
        self.started_in = started_in
        given = values or {}
        for param in self.stored():
            value = given[param.name] if param.name in given else param.default_value()
            setattr(self, param.attribute, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.values() == other.values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        changed = {
            param.name: self.get(param.name)
            for param in self.stored()
            if not param.secret and self.get(param.name) != param.default_value()
        }
        return f"<{type(self).__name__} file={self.file!r} {changed}>"

    @classmethod
    def stored(cls) -> list[Param]:
        """Return the parameters that have a value, in the order of the table."""
        return [param for param in cls.table.values() if param.stored]

    def get(self, name: str) -> Any:
        """Return the value of a parameter. Raises ``KeyError`` for an unknown name."""
        return getattr(self, self.table[name].attribute)

    def put(self, name: str, value: Any) -> None:
        """Set a parameter that the program itself maintains, and CONFIG SET does not accept."""
        setattr(self, self.table[name].attribute, value)

    def values(self) -> dict[str, Any]:
        """Return all values by parameter name."""
        return {param.name: self.get(param.name) for param in self.stored()}

    def written(self) -> Self:
        """Return what CONFIG REWRITE writes."""
        return self

    def secrets(self) -> set[str]:
        """Return the passwords and the like that are set, as they may appear on a command line."""
        return {
            word
            for param in self.stored()
            if param.secret
            for word in param.type.words(self.get(param.name))
            if word
        }

    def config_get(self, patterns: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """The reply of CONFIG GET: names that match any of the globs, each once, with their
        texts."""
        globs = [Glob(pattern.lower()) for pattern in dict.fromkeys(patterns)]
        return [
            (name.encode(), to_bytes(param.told(self.get(name))))
            for name, param in self.table.items()
            if not param.file_only and any(glob.matches(name.encode()) for glob in globs)
        ]

    def config_set(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
        """CONFIG SET: set all pairs, or none if one is bad.

        Returns the names whose value changed, in the order given. Raises ``ConfigError``, whose
        text is the error reply.
        """
        values = self.read_pairs(pairs)
        changed = [name for name, value in values.items() if value != self.get(name)]
        for name in changed:
            setattr(self, self.table[name].attribute, values[name])
        return changed

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Return a copy in which the parameters in ``values`` (by name) differ."""
        other = copy(self)
        for name, value in values.items():
            setattr(other, self.table[name].attribute, value)
        return other

    def read_pairs(
        self, pairs: Sequence[tuple[bytes, bytes]], trusted: bool = True
    ) -> dict[str, Any]:
        """Return the values that CONFIG SET would set, by name, without setting them. ``trusted``:
        the caller may change protected parameters. Raises ``ConfigError`` like ``config_set``."""
        values: dict[str, Any] = {}
        for raw_name, raw_text in pairs:
            name, text = to_text(raw_name).lower(), to_text(raw_text)
            param = self.table.get(name)
            refusal = self._refusal(param, text, trusted) if param is not None else None
            if refusal is not None:
                raise ConfigError(
                    "ERR CONFIG SET failed (possibly related to argument "
                    f"'{to_text(raw_name)}') - {refusal}",
                    setting=to_text(raw_name),
                )
            if param is None or not param.settable:
                raise ConfigError(
                    f"ERR Unsupported CONFIG parameter: {to_text(raw_name)}",
                    setting=to_text(raw_name),
                )
            try:
                if name in values:
                    raise BadValue("it is given twice")
                values[name] = param.parse_text(text)
            except BadValue as error:
                because = f" - {error.reason}" if error.reason else ""
                raise ConfigError(
                    f"ERR Invalid argument '{param.got(text)}' for CONFIG SET "
                    f"'{to_text(raw_name)}'{because}",
                    setting=to_text(raw_name),
                    expected=param.type.expected,
                ) from error
        return values

    def check_needs(self, values: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` if one of ``values``, by name, turns something on that has no
        effect, since another setting is off and stays so."""
        for name, value in values.items():
            for other in self.table[name].needs if value else ():
                needed = values.get(other, self.get(other))
                if not needed:
                    raise ConfigError(
                        f"ERR CONFIG SET failed (possibly related to argument '{name}') - it "
                        f"has no effect while {other} is {self.table[other].told(needed)}",
                        setting=name,
                    )

    def _refusal(self, param: Param, text: str, trusted: bool) -> str | None:
        """Return why nobody, or nobody who is not ``trusted``, may SET ``param`` to ``text``."""
        if param.immutable:
            return "can't set immutable config"
        if trusted or not param.protected:
            return None
        if not param.reread:
            return "can't set protected config"
        if text == param.type.show(self.get(param.name)):
            return None
        return "can't set protected config to another path (see enable-protected-configs)"
