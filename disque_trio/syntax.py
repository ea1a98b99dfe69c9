"""The notation in which a command tells its arguments: parsed, so that programs can use it too.

``queue`` is an argument, ``FROM`` a word to send as it is, ``all|id`` a choice of words, and
``[COUNT count]`` may be left out. ``queue [queue ...]`` is given once or more often,
``[queue ...]`` any number of times, and `` | `` is between whole alternatives. A remark at the end
lists the values of the argument ``option``, as in ``(in, out)``, or tells another form, as in
``(okq: queue id)``.
"""

import re
from dataclasses import dataclass, replace

_TOKEN = re.compile(r"\.\.\.|\[|\]|\s\|\s|[^\s\[\]]+")
_REMARK = re.compile(r"\s*\((?:(\w+): )?([^()]+)\)\s*$")
_WORD = re.compile(r"[A-Z][A-Z0-9-]*")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a syntax: a word, an argument, a sequence of parts or a choice.

    Attributes:
        name: the word, or the name of the argument; empty: a sequence, or an unnamed choice.
        parts: of a sequence. choices: one of these is given.
        optional: it may be left out. repeated: it may be given several times in a row.
    """

    name: str = ""
    parts: tuple["Part", ...] = ()
    choices: tuple["Part", ...] = ()
    optional: bool = False
    repeated: bool = False

    @property
    def is_word(self) -> bool:
        """Whether it is sent as it is."""
        return not self.choices and _WORD.fullmatch(self.name) is not None

    @property
    def inner(self) -> tuple["Part", ...]:
        """The parts of a sequence; any other part is a sequence of itself."""
        return self.parts or (replace(self, optional=False, repeated=False),)

    @property
    def token(self) -> str:
        """The word with which it begins; empty: it begins with an argument."""
        first = self.inner[0]
        return first.name if first.is_word and not first.optional else ""


def parse(syntax: str) -> tuple[Part, ...]:
    """The alternatives of a command, each of them a sequence; one that is optional may be left out
    altogether. Raises ValueError if ``syntax`` is not in the notation."""
    remark = _REMARK.search(syntax)
    form, about = remark.groups() if remark else (None, "")
    tokens: list[str] = _TOKEN.findall(syntax[: remark.start()] if remark else syntax)
    found = _alternatives(tokens)
    if tokens:
        raise ValueError(f"{syntax}: {tokens[0]} is too much")
    if not all(one.parts for one in found) and len(found) > 1:
        raise ValueError(f"{syntax}: an alternative is empty")
    if len(found) == 1 and len(found[0].parts) == 1 and found[0].parts[0].choices:
        (only,) = found[0].parts
        if only.optional and not only.name:
            found = [replace(one, optional=True) for one in only.choices]
    if form:
        found += parse(about)
    elif about:
        words = tuple(Part(word) for word in about.split(", "))
        found = [
            replace(one, parts=tuple(_with(words, part) for part in one.parts)) for one in found
        ]
    return tuple(found)


def _with(words: tuple[Part, ...], part: Part) -> Part:
    return replace(part, choices=words) if part.name == "option" else part


def _alternatives(tokens: list[str]) -> list[Part]:
    """Take what comes up to the end of a group from ``tokens``."""
    found: list[Part] = []
    now: list[Part] = []
    while tokens and tokens[0] != "]":
        token = tokens.pop(0)
        if token.strip() == "|":
            found.append(Part(parts=tuple(now)))
            now = []
        elif token == "[":
            _add_group(now, tokens)
        elif token != "...":
            now.append(_one(token))
    return [*found, Part(parts=tuple(now))]


def _add_group(now: list[Part], tokens: list[str]) -> None:
    """Take a group in brackets, and add it to the parts before it, ``now``."""
    repeated, group = _in_brackets(tokens)
    arguments = [at for at, part in enumerate(now) if not part.is_word]
    if not all(one.parts or (repeated and arguments) for one in group):
        raise ValueError("a group is empty")
    if len(group) > 1:
        now.append(Part(choices=tuple(group), optional=True))
        return
    parts = group[0].parts
    if repeated and not parts:  # all arguments before it
        parts = tuple(now[arguments[0] :])
    if repeated and parts and tuple(now[-len(parts) :]) == parts:
        del now[-len(parts) :]
        now.append(replace(_joined(parts), repeated=True))
        return
    if repeated and len(parts) > 1 and parts[0].is_word:
        parts = (parts[0], replace(_joined(parts[1:]), optional=True, repeated=True))
        repeated = False
    now.append(replace(_joined(parts), optional=True, repeated=repeated or _is_many(parts)))


def _in_brackets(tokens: list[str]) -> tuple[bool, list[Part]]:
    """Take the alternatives in brackets. The first value is whether dots are before the end."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token == "[") - (token == "]")
        if depth < 0:
            dots = at > 0 and tokens[at - 1] == "..."
            group = _alternatives(tokens)
            del tokens[0]
            return dots, group
    raise ValueError("a group does not end")


def _is_many(parts: tuple[Part, ...]) -> bool:
    return len(parts) == 1 and parts[0].repeated


def _joined(parts: tuple[Part, ...]) -> Part:
    return parts[0] if len(parts) == 1 else Part(parts=parts)


def _one(token: str) -> Part:
    if "|" not in token or "/" in token:  # not the units in count/s|count/m
        return Part(token)
    return Part(choices=tuple(Part(word) for word in token.split("|")))
