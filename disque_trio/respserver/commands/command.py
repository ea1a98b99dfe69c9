"""COMMAND: what commands there are, with their arguments and keys as Redis tells them."""

from disque_trio.resp.reply import NULL_ARRAY, Value, encode
from disque_trio.respserver.access import FOUND
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import AnyCommand, CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, wrong_arity
from disque_trio.respserver.commands.command_docs import docs_of, key_flags, row_of
from disque_trio.respserver.machine import Machine


def command(node: Machine, client: Client, args: list[bytes]) -> None:
    """COMMAND and its subcommands."""
    word = args[1].lower() if len(args) > 1 else b""
    answer: Value
    resp = client.resp
    if len(args) == 1 or word == b"info":
        rows = [node.commands.get(name.lower()) for name in args[2:]] or [*node.commands.values()]
        none = encode(NULL_ARRAY, resp)
        told = [none if found is None else row_of(found, resp) for found in rows]
        client.out.append(b"*%d\r\n" % len(told) + b"".join(told))
        return
    if word == b"docs":
        names = dict.fromkeys([name.lower() for name in args[2:]] or node.commands)
        told = [docs_of(node.commands[name], resp) for name in names if name in node.commands]
        head = b"%%%d\r\n" % len(told) if resp == 3 else b"*%d\r\n" % (2 * len(told))
        client.out.append(head + b"".join(told))
        return
    if word == b"count" and len(args) == 2:
        answer = len(node.commands)
    elif word == b"list" and len(args) == 2:
        answer = list(node.commands)
    elif word == b"list" and [arg.lower() for arg in args[2:4]] == [b"filterby", b"aclcat"]:
        if len(args) != 5:
            raise CommandError(SYNTAX)
        category = args[4].decode("latin-1").lower()
        answer = [name for name, row in node.commands.items() if _is_in(row, category)]
    elif word == b"getkeys":
        answer = list(_queues_named(node, args[2:], "getkeys"))
    elif word == b"getkeysandflags":
        needed = _queues_named(node, args[2:], "getkeysandflags")
        asked = node.command_of(args[2:])
        answer = [[name, key_flags(asked, need)] for name, need in needed.items()]
    else:
        raise CommandError("ERR Unknown subcommand or wrong number of arguments.")
    client.out.append(encode(answer, client.resp))


def _queues_named(node: Machine, request: list[bytes], part: str) -> dict[bytes, int]:
    """The words of ``request`` that are names of queues, topics or patterns, and what is needed
    there."""
    if len(request) < 2:
        raise wrong_arity(f"command|{part}")
    command = node.find_command(request[0])
    if command is None:
        raise CommandError("ERR Invalid command specified")
    if not command.min_args <= len(request) <= command.max_args:
        raise CommandError("ERR Invalid number of arguments specified for command")
    found, _ = command.accesses(node, request)
    # What the node holds must not show, such as whether the queue of an id is one of the words.
    words = set(request[1:])
    names: dict[bytes, int] = {}
    for name, need in found:
        if not need & FOUND and name in words:
            names[name] = names.get(name, 0) | need
    if not names:
        raise CommandError("ERR The command has no key arguments")
    return names


def _is_in(command: AnyCommand, category: str) -> bool:
    """Whether ``command``, or one of its subcommands, is in ``category``."""
    return any(category in found for found in (command.categories, *command.parts.values()))
