"""Reads the words of requests by the syntax of their command: which words are queues, ids, options
and their values, and which are secret.

Options may come in any order. Where they follow an argument that may be repeated, the first word
that is one of them ends it; if one of them has to be given, options are looked for from the end,
because then queues may have the names of options.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from disque_trio.resp.ints import parse_int
from disque_trio.syntax import Part, parse

SYNTAX: Final = "ERR syntax error"


class CommandError(Exception):
    """Ends a command with an error reply; the text starts with the error's code."""


# Converts or checks a word, as a number (0: it is none); raises CommandError if it is wrong.
Value: TypeAlias = Callable[[bytes], int]

_ARGUMENT: Final = 0
_MANY: Final = 1
_WORD: Final = 2
_OPTIONS: Final = 3
_MAYBE: Final = 4


class Found:
    """What the words of a request are.

    Attributes:
        args: all of them.
        words: by the word before them (``COUNT``) or the name of the argument (``queue``), as in
            the syntax; an option without values has none.
        numbers: those of them that are numbers, the last of each.
        problem: why the request is malformed; then only the arguments in front are known.
    """

    __slots__ = ("args", "numbers", "problem", "words")

    def __init__(self, args: list[bytes]) -> None:
        self.args = args
        self.words: dict[str, list[bytes]] = {}
        self.numbers: dict[str, int] = {}
        self.problem = ""

    def has(self, name: str) -> bool:
        """Whether ``name`` is given."""
        return name in self.words

    def all(self, name: str) -> list[bytes]:
        """The words of ``name``; none if it is not given."""
        return self.words.get(name, [])

    def text(self, name: str) -> bytes:
        """The last word of ``name``; empty: it is not given."""
        found = self.words.get(name)
        return found[len(found) - 1] if found else b""

    def number(self, name: str, default: int) -> int:
        """The number that ``name`` is; ``default``: it is not given."""
        return self.numbers.get(name, default)


class _Step:
    """A step in reading a request: an argument, one that may be repeated, a word, options, or other
    steps that may be left out.

    Attributes:
        width: words that an option has, or that are repeated together.
        rest: the option has all words that follow; least: how many there must be.
        counted: groups of so many words follow the first one, which is their number.
        many: it may be given several times.
        loose: a number that may be among the options: its name; empty: none.
        needed: the option that has to be given; empty: none. longest: bytes of the longest option.
    """

    def __init__(self, kind: int, name: str) -> None:
        self.kind = kind
        self.name = name
        self.width = 0
        self.rest = False
        self.least = 0
        self.longest = 0
        self.counted = 0
        self.many = False
        self.loose = ""
        self.needed = ""
        self.options: dict[bytes, _Step] = {}
        self.steps: list[_Step] = []


class Form:
    """How to read what a syntax describes.

    Attributes:
        syntax: its alternatives.
        lead: the arguments at fixed places, before all that may vary: names and indexes.
        secrets: after which word (empty: the command itself) words are secret, and from which on.
        requests: where another request begins, by the word before.
        rules, settings: where rules for users begin, or the names of settings and their values;
            0: nowhere. Some of these words are secret.
    """

    def __init__(self, syntax: str) -> None:
        self.syntax = parse(syntax)
        self.lead: dict[str, int] = {}
        self.secrets: dict[bytes, int] = {}
        self.requests: dict[bytes, int] = {}
        self.rules: dict[bytes, int] = {}
        self.settings = False
        self._forms: list[tuple[bytes, list[_Step]]] = []
        self._tokens = any(alternative.token for alternative in self.syntax)
        for alternative in self.syntax:
            steps = _steps(alternative.inner)
            self._forms.append((alternative.token.lower().encode(), steps))
            self._note_lead(steps, 1)
            self._note_secrets(alternative)

    def _note_lead(self, steps: list[_Step], index: int) -> None:
        for step in steps:
            if step.kind == _MAYBE:
                self._note_lead(step.steps, index)
            if step.kind == _ARGUMENT:
                self.lead.setdefault(step.name, index)
            elif step.kind != _WORD:
                break
            index += 1

    def _note_secrets(self, alternative: Part) -> None:
        token = alternative.token.lower().encode()
        for at, part in enumerate(alternative.inner, 1):
            names = _names(part)
            if "password" in names:
                self.secrets[token] = at if token else 1
            if "argument" in names:  # the command is before it
                self.requests[token] = at - 1
            if "rule" in names:
                self.rules[token] = at
            if "setting" in names:
                self.settings = True

    def leading(self, args: list[bytes]) -> Found:
        """Return which words of ``args`` are the arguments in ``lead``; quicker than ``match``."""
        found = Found(args)
        for name, index in self.lead.items():
            if index < len(args):
                found.words[name] = [args[index]]
        return found

    def match(self, args: list[bytes], reading: "Words") -> Found:
        """Return what the words of ``args`` are."""
        found = Found(args)
        first = args[1].lower() if self._tokens and len(args) > 1 else b""
        for token, steps in self._forms:
            if token and token != first:
                continue
            if found.problem:  # another alternative has been tried
                found = Found(args)
            if len(args) == 1:
                return found
            try:
                if _take(steps, args, 1, found, reading) == len(args):
                    return found
                found.problem = reading.wrong
            except CommandError as wrong:
                found.problem = str(wrong)
        found.problem = found.problem or reading.wrong
        found.words = {name: found.words[name] for name in found.words if name in self.lead}
        return found


_FORMS: Final[dict[str, Form]] = {}


class Words:
    """How one command reads its words.

    Attributes:
        syntax: see ``disque_trio.syntax``.
        values: of words and arguments that are not just text.
        wrong: the error for words that are missing, repeated or unknown.
        repeats: options may be repeated.
    """

    def __init__(self, syntax: str, values: dict[str, Value], wrong: str, repeats: bool) -> None:
        self.syntax = syntax
        self.values = values
        self.wrong = wrong
        self.repeats = repeats
        self._form: Form | None = None

    @property
    def form(self) -> Form:
        """How to read the syntax; made when it is first used, and once for all tables."""
        if self._form is None:
            if self.syntax not in _FORMS:
                _FORMS[self.syntax] = Form(self.syntax)
            self._form = _FORMS[self.syntax]
        return self._form

    def match(self, args: list[bytes]) -> Found:
        """Return what the words of ``args`` are, which may be malformed."""
        return self.form.match(args, self)

    def read(self, args: list[bytes]) -> Found:
        """The same; raises ``CommandError`` if they are malformed."""
        found = self.form.match(args, self)
        if found.problem:
            raise CommandError(found.problem)
        return found


def _names(part: Part) -> set[str]:
    """The names of the arguments in ``part``."""
    found = {part.name}
    for inner in part.parts:
        found |= _names(inner)
    return found


def _steps(parts: tuple[Part, ...]) -> list[_Step]:
    """The steps that read a sequence."""
    found: list[_Step] = []
    for at, part in enumerate(parts):
        last = found[len(found) - 1] if found else None
        token = part.token
        if token and (part.optional or (last is not None and last.kind == _MANY)):
            if last is None or last.kind != _OPTIONS:
                last = _Step(_OPTIONS, "")
                found.append(last)
            if not part.optional:  # CREDIT, and what belongs to it
                last.needed = token
                _add_option(last, Part(parts=parts[at : at + 2]))
            else:
                _add_option(last, part)
        elif last is not None and last.needed and parts[at - 1].name == last.needed:
            pass
        elif token:
            found.append(_Step(_WORD, token))
        elif part.repeated:
            found.append(_many(part))
        elif part.optional and at + 1 < len(parts) and parts[at + 1].optional:
            last = _Step(_OPTIONS, "")
            last.loose = part.name
            found.append(last)
        elif part.optional:
            step = _Step(_MAYBE, part.name)
            step.steps = _steps(part.inner)
            step.width = sum(not (one.optional or one.repeated) for one in parts[at + 1 :])
            found.append(step)
        else:
            found.append(_Step(_ARGUMENT, part.name or "|".join(one.name for one in part.choices)))
    return found


def _many(part: Part) -> _Step:
    step = _Step(_MANY, part.inner[0].name)
    step.width = len(part.inner)
    step.many = not part.optional
    return step


def _add_option(step: _Step, part: Part) -> None:
    """Add ``part`` to the options in ``step``, and what may follow it as options of its own."""
    option = _Step(_OPTIONS, part.token)
    option.many = part.repeated
    for inner in part.inner[1:]:
        if inner.optional and inner.token:
            _add_option(step, inner)
        elif inner.repeated and option.width:
            option.counted = len(inner.inner)
        elif inner.repeated:
            option.rest = True
            option.least = not inner.optional
        else:
            option.width += 1
    step.options[part.token.lower().encode()] = option
    step.longest = max(step.longest, len(part.token))


def _take(steps: list[_Step], args: list[bytes], at: int, found: Found, reading: Words) -> int:
    """Read what ``steps`` say from ``args[at]`` on, and return the index behind it. Raises
    ``CommandError``."""
    for index, step in enumerate(steps):
        kind = step.kind
        if kind == _OPTIONS:
            at = _take_options(step, args, at, found, reading, index + 1 == len(steps))
        elif kind == _MANY:
            following = steps[index + 1] if index + 1 < len(steps) else None
            if following is not None and following.needed:
                return _take_from_end(step, following, args, at, found, reading)
            end = len(args)
            if following is not None:
                for one in range(at + step.many, end):
                    # Ids are longer.
                    if (
                        len(args[one]) <= following.longest
                        and args[one].lower() in following.options
                    ):
                        end = one
                        break
            if end > at:
                _put(step.name, args[at:end], found, reading)
            at = end
        elif kind == _MAYBE:
            if len(args) - at > step.width:
                at = _take(step.steps, args, at, found, reading)
        elif at == len(args):
            raise CommandError(reading.wrong)
        elif kind == _ARGUMENT:
            _put(step.name, args[at : at + 1], found, reading)
            at += 1
        else:
            if args[at].lower().decode("latin-1") != step.name.lower():
                raise CommandError(reading.wrong)
            at += 1
    return at


def _take_options(
    step: _Step, args: list[bytes], at: int, found: Found, reading: Words, last: bool
) -> int:
    """Read options in any order; ``last``: nothing else may follow."""
    while at < len(args):
        option = step.options.get(args[at].lower())
        if option is None:
            if step.loose and args[at].isdigit():
                if step.loose in found.words:
                    raise CommandError(SYNTAX)
                found.words[step.loose] = [args[at]]
                at += 1
                continue
            if last:
                raise CommandError(reading.wrong)
            break
        if option.name in found.words and not (option.many or reading.repeats):
            raise CommandError(reading.wrong)
        at += 1
        end = len(args) if option.rest else at + option.width
        if option.counted and at < len(args):
            end += max(parse_int(args[at]) or 0, 0) * option.counted
        if end < at + option.least or end > len(args):
            raise CommandError(reading.wrong)
        _put(option.name, args[at:end], found, reading)
        at = end
    return at


def _take_from_end(
    step: _Step, following: _Step, args: list[bytes], at: int, found: Found, reading: Words
) -> int:
    """Read options from the end, and what comes before them as ``step``."""
    end = len(args)
    while end > at:
        option = following.options.get(args[end - 1].lower())
        start = end - 1
        if option is None or option.width or option.name in found.words:
            option = following.options.get(args[end - 2].lower())
            start = end - 2
            if option is None or option.width != 1 or option.name in found.words:
                break
        _put(option.name, args[start + 1 : end], found, reading)
        end = start
    if end <= at or following.needed not in found.words:
        raise CommandError(reading.wrong)
    _put(step.name, args[at:end], found, reading)
    return len(args)


def _put(name: str, words: list[bytes], found: Found, reading: Words) -> None:
    """Note that ``words`` are those of ``name``."""
    known = found.words.get(name)
    found.words[name] = words if known is None else known + words
    value = reading.values.get(name)
    if value is not None:
        for word in words:
            found.numbers[name] = value(word)
