"""What COMMAND tells of a command's arguments and keys, made from its syntax.

Keys, as Redis calls them, are names of queues.
"""

from typing import Final, NamedTuple

from disque_trio.resp.reply import Simple, Value, bulk, encode
from disque_trio.respserver.access import ADD, TAKE
from disque_trio.respserver.categories import CATEGORIES
from disque_trio.respserver.command import AnyCommand
from disque_trio.syntax import Part

# The types of arguments, by name; all others are texts.
_TYPES: Final = {
    **dict.fromkeys(
        ("0", "0-7", "bits", "bytes", "client-id", "count", "cursor", "length", "ms", "ms-timeout",
         "port", "rate"),
        b"integer",
    ),
    **dict.fromkeys(("expire-seconds", "max", "min", "seconds", "timeout"), b"double"),
    "pattern": b"pattern",
    "unix-ms": b"unix-time",
}  # fmt: skip
_KEYS: Final = ("queue", "from", "to")
# Values of ``Key.last``.
_EVERY: Final = -1
_UNKNOWN: Final = -2


class Key(NamedTuple):
    """Where names of queues are in requests.

    Attributes:
        at: index of the first one; 0: after the word ``keyword``.
        last: 0: it is the only one; -1: all that follow are names, too; -2: some of them.
        flags: see ``key_flags``.
    """

    at: int
    keyword: str
    last: int
    flags: list[Value]


def key_flags(command: AnyCommand, need: int) -> list[Value]:
    """The flags of a key where ``need`` is needed: ACCESS, which rules for users allow by ``%R``,
    and INSERT, by ``%W``."""
    flags = [Simple(b"RW" if command.writes or need & ADD else b"RO")]
    if need & TAKE:
        flags.append(Simple(b"ACCESS"))
    if need & ADD:
        flags.append(Simple(b"INSERT"))
    return list(flags)


def keys_of(command: AnyCommand) -> list[Key]:
    """Where the names of queues are."""
    found: list[Key] = []
    if command.needs:
        _find_keys(command, command.words.form.syntax[0].inner, 1, found)
    return found


def _find_keys(command: AnyCommand, parts: tuple[Part, ...], index: int, found: list[Key]) -> None:
    """Find keys in ``parts``, which begin at ``index``; 0: anywhere."""
    word = ""
    for at, part in enumerate(parts):
        if part.parts:
            before = len(found)
            _find_keys(command, part.parts, 0 if part.token else index, found)
            if part.repeated:
                found[before:] = [key._replace(last=_UNKNOWN) for key in found[before:]]
            index = 0
            continue
        need = command.needs.get(word, command.needs.get(part.name))
        if part.name in _KEYS and need is not None:
            flags = key_flags(command, need if isinstance(need, int) else TAKE | ADD)
            if not isinstance(need, int):
                flags.append(Simple(b"variable_flags"))
            last = 0
            if part.repeated:
                last = _EVERY if at + 1 == len(parts) else _UNKNOWN
            found.append(Key(index, word, last, flags))
        word = part.name if part.is_word else ""
        index = 0 if part.is_word or part.optional or part.repeated or not index else index + 1


def _describe(key: Key) -> Value:
    """``key`` as COMMAND INFO has it."""
    search: dict[bytes, Value] = {b"index": key.at}
    if key.keyword:
        search = {b"keyword": key.keyword.encode(), b"startfrom": 1}
    kind = Simple(b"keyword" if key.keyword else b"index")
    follow: dict[bytes, Value] = {b"lastkey": key.last, b"keystep": 1, b"limit": 0}
    if key.last == _UNKNOWN:
        follow = {}
    return {
        b"flags": [*key.flags, *([Simple(b"incomplete")] if key.last == _UNKNOWN else [])],
        b"begin_search": {b"type": kind, b"spec": search},
        b"find_keys": {b"type": Simple(b"range" if follow else b"unknown"), b"spec": follow},
    }


def docs_of(command: AnyCommand, resp: int) -> bytes:
    """The name of ``command`` and what COMMAND DOCS tells of it, for a version of the protocol. It
    is kept, since it always stays the same."""
    if resp not in command.docs:
        command.docs[resp] = bulk(command.name.encode()) + encode(_docs(command), resp)
    return command.docs[resp]


def row_of(command: AnyCommand, resp: int) -> bytes:
    """The line of ``command`` in COMMAND INFO, likewise."""
    if resp not in command.rows:
        command.rows[resp] = encode(_row(command, resp), resp)
    return command.rows[resp]


def _row(command: AnyCommand, resp: int) -> Value:
    """Name, arity, flags, and the old form of the places of keys, which is always 0 in C Disque.
    RESP3 clients also expect what Redis has added since: categories, tips, keys, subcommands."""
    flags: list[Value] = [Simple(flag.encode()) for flag in command.flags]
    row: list[Value] = [command.name.encode(), command.arity, flags, 0, 0, 0]
    if resp == 2:
        return row
    parts: list[Value] = [
        [f"{command.name}|{part}".encode(), -2, flags, 0, 0, 0, _categories(found), [], [], []]
        for part, found in command.parts.items()
    ]
    return [
        *row,
        _categories(command.categories),
        [],
        [_describe(key) for key in keys_of(command)],
        parts,
    ]


def _categories(found: frozenset[str]) -> Value:
    return [Simple(b"@" + category.encode()) for category in CATEGORIES if category in found]


def _docs(command: AnyCommand) -> dict[bytes, Value]:
    about: dict[bytes, Value] = {
        b"summary": command.summary.encode(),
        b"since": b"0.1.0",
        b"group": command.group.encode(),
        b"complexity": b"",
    }
    docs = {**about, b"syntax": command.syntax.encode()}
    if command.alias_of:
        docs[b"doc_flags"] = [Simple(b"deprecated")]
        docs[b"replaced_by"] = command.alias_of.encode()
    forms = command.words.form.syntax
    keys = {key.keyword or "queue": at for at, key in enumerate(keys_of(command))}
    if all(form.token for form in forms):
        parts: dict[str, list[Part]] = {}
        for form in forms:
            parts.setdefault(form.token, []).append(Part(parts=form.inner[1:]))
        docs[b"subcommands"] = {
            f"{command.name}|{name.lower()}".encode(): {**about, b"arguments": _forms(some, keys)}
            for name, some in parts.items()
        }
    elif forms[0].inner[0].name or forms[0].parts:
        docs[b"arguments"] = _forms(list(forms), keys)
    return docs


def _forms(forms: list[Part], keys: dict[str, int]) -> list[Value]:
    """The arguments of all ``forms``: a sequence, or a choice of sequences."""
    if len(forms) == 1:
        return _sequence(forms[0].parts, keys)
    blocks: list[Value] = [
        {b"name": b"form%d" % at, b"type": b"block", b"arguments": _sequence(form.parts, keys)}
        for at, form in enumerate(forms, 1)
    ]
    return [{b"name": b"form", b"type": b"oneof", b"arguments": blocks}]


def _sequence(parts: tuple[Part, ...], keys: dict[str, int]) -> list[Value]:
    found: list[Value] = []
    token = ""
    for at, part in enumerate(parts):
        following = parts[at + 1] if at + 1 < len(parts) else None
        if part.is_word and not part.optional and following and following.name:
            token = part.name  # of the argument after it
        else:
            found.append(_argument(part, token, keys))
            token = ""
    return found


def _argument(part: Part, token: str, keys: dict[str, int]) -> dict[bytes, Value]:
    """One argument, as COMMAND DOCS has it; ``token``: the word before it."""
    flags: list[Value] = [Simple(b"optional")] if part.optional else []
    if part.repeated:
        flags.append(Simple(b"multiple"))
    inner = part.parts
    if inner and part.token:
        token = part.token
        inner = inner[1:]
        if part.repeated:
            flags.append(Simple(b"multiple_token"))
    only = inner[0] if len(inner) == 1 and not inner[0].is_word else None
    if only is not None:
        if only.repeated and not part.repeated:
            flags.append(Simple(b"multiple"))
        part, inner = only, only.parts
    name = part.name or token or "choice"
    docs: dict[bytes, Value] = {b"name": name.lower().encode(), b"type": b"string"}
    if inner:
        docs[b"type"] = b"block"
        docs[b"arguments"] = _sequence(inner, keys)
    elif part.choices:
        docs[b"type"] = b"oneof"
        docs[b"arguments"] = [_word(choice.name) for choice in part.choices]
    elif part.is_word:
        docs[b"type"] = b"pure-token"
        token = part.name
    elif name in _KEYS and (token if token in keys else name) in keys:
        docs[b"type"] = b"key"
        docs[b"key_spec_index"] = keys[token if token in keys else name]
    else:
        docs[b"type"] = _TYPES.get(name, b"string")
    if token:
        docs[b"token"] = token.encode()
    if flags:
        docs[b"flags"] = flags
    return docs


def _word(name: str) -> Value:
    return {b"name": name.lower().encode(), b"type": b"pure-token", b"token": name.encode()}
