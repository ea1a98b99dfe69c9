"""Server commands: CONFIG, INFO, TIME, SHUTDOWN, RESTART, BGREWRITEAOF."""

from disque_trio.glob import MAX_PATTERN
from disque_trio.resp.reply import (
    OK,
    Text,
    Value,
    encode,
)
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX
from disque_trio.respserver.commands.info import info_text
from disque_trio.respserver.machine import Machine


def info(node: Machine, client: Client, args: list[bytes]) -> None:
    """INFO."""
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
    """CONFIG and its subcommands."""
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


def shutdown(node: Machine, client: Client, args: list[bytes]) -> None:
    """SHUTDOWN: end the node, without a reply unless that fails."""
    if len(args) == 1 or (len(args) == 2 and args[1].lower() in (b"save", b"nosave")):
        problem = node.host.shutdown(False)
    elif len(args) == 2 and args[1].lower() == b"rewrite-aof":
        problem = None if node.host.begin_shutdown(client) else node.host.shutdown(True)
    else:
        raise CommandError(SYNTAX)
    if problem is not None:
        raise CommandError(problem)


def restart(node: Machine, client: Client, args: list[bytes]) -> None:
    """RESTART: a new process continues with jobs and queues; no reply unless that fails."""
    problem = None if node.host.begin_restart(client) else node.host.restart()
    if problem is not None:
        raise CommandError(problem)


def bgrewriteaof(node: Machine, client: Client, args: list[bytes]) -> None:
    """BGREWRITEAOF."""
    problem = node.host.rewrite_aof()
    if problem is not None:
        raise CommandError(problem)
    client.out.append(b"+Background append only file rewriting started\r\n")
