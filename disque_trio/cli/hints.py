"""Derives hints and completions from the syntax of a command (see ``disque_trio.syntax``)."""

import re
from collections.abc import Sequence

from disque_trio.syntax import Part, parse

_WORD = re.compile(r"[A-Z][A-Z0-9-]*")
_REMARK = re.compile(r"\(([a-z, ]+)\)\s*$")


def hint(syntax: str, typed: Sequence[str]) -> str:
    """The part of ``syntax`` that remains after the arguments ``typed``."""
    if not _forms(syntax):
        return ""
    parts = _parts(_alternative(_REMARK.sub("", syntax), typed))
    pending: list[str] = []
    for argument in typed:
        match = _keyword_at(parts, argument)
        if match is not None:
            _, *pending = parts[match].strip("[]").split()
            # Options before a bare keyword such as FROM cannot follow it.
            start = 0 if not parts[match].startswith("[") else match
            del parts[start : match + 1]
        elif pending:
            if pending[-1] != "...":
                pending = pending[1:]
        else:
            _drop_argument(parts)
    return " ".join([*pending, *parts])


def words(syntax: str, typed: Sequence[str] = ()) -> list[str]:
    """The words of ``syntax`` that may come after the arguments ``typed``, in order, each once."""
    forms = _forms(syntax)
    first = typed[0].lower() if typed else ""
    chosen = [form.inner[1:] for form in forms if form.token and form.token.lower() == first]
    if chosen:
        parts = [part for some in chosen for part in some]
        typed = typed[1:]
    else:
        parts = [part for form in forms for part in ((form,) if form.token else form.inner)]
    last = typed[-1].lower() if typed else ""
    for part in parts:
        if last and part.token.lower() == last and len(part.inner) > 1:
            parts = [part.inner[1]]  # the value of an option
            break
    return list(dict.fromkeys(word for part in parts for word in _first(part)))


def _forms(syntax: str) -> tuple[Part, ...]:
    """The alternatives of a command; none if they cannot be read: the server is not ours."""
    try:
        return parse(syntax)
    except (ValueError, RecursionError):
        return ()


def _first(part: Part) -> list[str]:
    """The words with which ``part`` may begin, and those of options that belong to it."""
    if part.token:
        inner = [one for one in part.inner[1:] if one.optional]
        return [part.token, *(word for one in inner for word in _first(one))]
    words = [choice.name for choice in part.choices if choice.name]
    return words + [word for one in part.parts for word in _first(one)]


def _parts(syntax: str) -> list[str]:
    """Split at spaces outside brackets."""
    parts: list[str] = []
    depth = 0
    for token in syntax.split():
        if depth:
            parts[-1] += " " + token
        else:
            parts.append(token)
        depth += token.count("[") - token.count("]")
    return parts


def _alternative(syntax: str, typed: Sequence[str]) -> str:
    """The alternative that begins like the typed arguments; all of them if none does."""
    inner = syntax
    if syntax.startswith("[") and syntax.endswith("]") and len(_parts(syntax)) == 1:
        inner = syntax[1:-1]
    alternatives = [alternative.strip() for alternative in inner.split(" | ")]
    if typed and len(alternatives) > 1:
        for alternative in alternatives:
            if alternative.split()[0].lower() == typed[0].lower():
                return alternative
    return syntax


def _keyword_at(parts: Sequence[str], argument: str) -> int | None:
    for index, part in enumerate(parts):
        first = part.strip("[]").split()[0] if part.strip("[]") else ""
        choices = first.split("|")
        is_keyword = _WORD.fullmatch(choices[0]) is not None
        if is_keyword and argument.lower() in [choice.lower() for choice in choices]:
            return index
        if not part.startswith("[") and not is_keyword:
            return None  # a plain argument comes first, and takes whatever is typed
    return None


def _drop_argument(parts: list[str]) -> None:
    """Remove the first plain argument, unless it may be repeated."""
    for index, part in enumerate(parts):
        inner = part.strip("[]")
        if inner.endswith("..."):
            return
        if not _WORD.fullmatch(inner.split()[0].split("|")[0]):
            del parts[index]
            return
