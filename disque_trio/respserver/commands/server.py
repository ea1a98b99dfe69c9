"""Server commands: CONFIG, COMMAND, INFO, TIME, SHUTDOWN, RESTART, BGREWRITEAOF."""

from disque_trio.glob import MAX_PATTERN
from disque_trio.resp.reply import (
    NULL_ARRAY,
    OK,
    Simple,
    Text,
    Value,
    encode,
)
from disque_trio.respserver.access import FOUND
from disque_trio.respserver.categories import CATEGORIES
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import AnyCommand, CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, wrong_arity
from disque_trio.respserver.commands.info import info_text
from disque_trio.respserver.machine import Machine


def info(node: Machine, client: Client, args: list[bytes]) -> None:
    """INFO [section]."""
    if len(args) > 2:
        raise CommandError(SYNTAX)
    section = args[1].decode("utf-8", "replace").lower() if len(args) == 2 else "default"
    client.out.append(encode(Text(info_text(node, section).encode()), client.resp))


def time(node: Machine, client: Client, args: list[bytes]) -> None:
    """TIME: seconds and microseconds of the wall clock."""
    now = node.host.time_us()
    if now is None:
        now = node.now * 1000
    client.out.append(encode([b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)]))


def config(node: Machine, client: Client, args: list[bytes]) -> None:
    """CONFIG GET pattern ..., SET name value ..., REWRITE, RESETSTAT."""
    word = args[1].lower()
    if word == b"get":
        if len(args) < 3:
            raise _config_arity(word)
        if sum(map(len, args[2:])) > MAX_PATTERN:
            raise CommandError(f"ERR the patterns have more than {MAX_PATTERN} bytes together")
        found: dict[bytes, Value] = dict(node.host.config_get(args[2:]))
        client.out.append(encode(found, client.resp))
        return
    if word == b"set":
        if len(args) < 4 or len(args) % 2:
            raise _config_arity(word)
        pairs = list(zip(args[2::2], args[3::2], strict=True))
        problem = node.host.config_set(pairs, client)
    elif word == b"rewrite":
        if len(args) != 2:
            raise _config_arity(word)
        problem = node.host.config_rewrite()
    elif word == b"resetstat":
        if len(args) != 2:
            raise _config_arity(word)
        problem = None
        node.reset_stats()
        node.host.reset_stats()
    else:
        raise CommandError("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
    if problem is not None:
        raise CommandError(problem)
    client.out.append(OK)


def _config_arity(word: bytes) -> CommandError:
    return CommandError(f"ERR Wrong number of arguments for CONFIG {word.decode()}")


def command(node: Machine, client: Client, args: list[bytes]) -> None:
    """COMMAND, COMMAND COUNT, LIST [FILTERBY ACLCAT category], INFO [name ...], DOCS [name ...],
    GETKEYS request ...."""
    word = args[1].lower() if len(args) > 1 else b""
    answer: Value
    if len(args) == 1:
        answer = [_row(found, client.resp) for found in node.commands.values()]
    elif word == b"count" and len(args) == 2:
        answer = len(node.commands)
    elif word == b"list" and len(args) == 2:
        answer = list(node.commands)
    elif word == b"list" and [arg.lower() for arg in args[2:4]] == [b"filterby", b"aclcat"]:
        if len(args) != 5:
            raise CommandError(SYNTAX)
        category = args[4].decode("latin-1").lower()
        answer = [name for name, row in node.commands.items() if _is_in(row, category)]
    elif word == b"info":
        if len(args) == 2:
            answer = [_row(found, client.resp) for found in node.commands.values()]
        else:
            rows: list[Value] = []
            for name in args[2:]:
                wanted = node.commands.get(name.lower())
                rows.append(NULL_ARRAY if wanted is None else _row(wanted, client.resp))
            answer = rows
    elif word == b"docs":
        names = [name.lower() for name in args[2:]] or list(node.commands)
        answer = {name: _docs(node.commands[name]) for name in names if name in node.commands}
    elif word == b"getkeys":
        answer = _queues_named(node, args[2:])
    else:
        raise CommandError("ERR Unknown subcommand or wrong number of arguments.")
    client.out.append(encode(answer, client.resp))


def _queues_named(node: Machine, request: list[bytes]) -> list[Value]:
    """The words of ``request`` that are names of queues, topics or patterns."""
    if len(request) < 2:
        raise wrong_arity("command|getkeys")
    command = node.find_command(request[0])
    if command is None:
        raise CommandError("ERR Invalid command specified")
    if not command.min_args <= len(request) <= command.max_args:
        raise CommandError("ERR Invalid number of arguments specified for command")
    found, _ = command.accesses(node, request)
    # What the node holds must not show, such as whether the queue of an id is one of the words.
    words = set(request[1:])
    names = dict.fromkeys([name for name, need in found if not need & FOUND and name in words])
    if not names:
        raise CommandError("ERR The command has no key arguments")
    return list(names)


def _is_in(command: AnyCommand, category: str) -> bool:
    """Whether ``command``, or one of its subcommands, is in ``category``."""
    return any(category in found for found in (command.categories, *command.parts.values()))


def _row(command: AnyCommand, resp: int) -> Value:
    """A line of COMMAND: name, arity, flags and the positions of keys, of which there are none.
    RESP3 clients also expect what Redis has added since: categories, tips, keys, subcommands."""
    flags: list[Value] = [Simple(flag.encode()) for flag in command.flags]
    row: list[Value] = [command.name.encode(), command.arity, flags, 0, 0, 0]
    if resp == 2:
        return row
    parts: list[Value] = [
        [f"{command.name}|{part}".encode(), -2, flags, 0, 0, 0, _categories(found), [], [], []]
        for part, found in command.parts.items()
    ]
    return [*row, _categories(command.categories), [], [], parts]


def _categories(found: frozenset[str]) -> Value:
    return [Simple(b"@" + category.encode()) for category in CATEGORIES if category in found]


def _docs(command: AnyCommand) -> Value:
    docs: dict[bytes, Value] = {
        b"summary": command.summary.encode(),
        b"since": b"0.1.0",
        b"group": command.group.encode(),
        b"complexity": b"",
        b"syntax": command.syntax.encode(),
    }
    if command.alias_of:
        docs[b"doc_flags"] = [Simple(b"deprecated")]
        docs[b"replaced_by"] = command.alias_of.encode()
    return docs


def shutdown(node: Machine, client: Client, args: list[bytes]) -> None:
    """SHUTDOWN [REWRITE-AOF]: end the node, without a reply unless that fails."""
    if len(args) == 1 or (len(args) == 2 and args[1].lower() in (b"save", b"nosave")):
        problem = node.host.shutdown(False)
    elif len(args) == 2 and args[1].lower() == b"rewrite-aof":
        problem = node.host.shutdown(True)
    else:
        raise CommandError(SYNTAX)
    if problem is not None:
        raise CommandError(problem)


def restart(node: Machine, client: Client, args: list[bytes]) -> None:
    """RESTART: a new process continues with jobs and queues; no reply unless that fails."""
    problem = node.host.restart()
    if problem is not None:
        raise CommandError(problem)


def bgrewriteaof(node: Machine, client: Client, args: list[bytes]) -> None:
    """BGREWRITEAOF."""
    problem = node.host.rewrite_aof()
    if problem is not None:
        raise CommandError(problem)
    client.out.append(b"+Background append only file rewriting started\r\n")
