"""CLIENT and its subcommands."""

from typing import Final

from disque_trio.resp.reply import OK, Text, encode, integer, null
from disque_trio.respserver.client import REPLY_OFF, REPLY_ON, REPLY_SKIP_NEXT, Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer, parse_timeout
from disque_trio.respserver.commands.listings import ClientLines
from disque_trio.respserver.machine import Machine

_FALLBACK: Final = (
    "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
)


def client_command(node: Machine, client: Client, args: list[bytes]) -> None:  # noqa: C901
    """CLIENT LIST, INFO, ID, GETNAME, SETNAME, SETINFO, KILL, PAUSE, UNBLOCK, REPLY, NO-EVICT,
    NO-TOUCH."""
    word = args[1].lower()
    count = len(args)
    out = client.out
    if word == b"list":
        node.batches.read(ClientLines(node, client, args, iter(_filtered(node, args[2:]))))
    elif word == b"info" and count == 2:
        line = node.host.describe(client) + "\n"
        out.append(encode(Text(line.encode("latin-1")), client.resp))
    elif word == b"id" and count == 2:
        out.append(integer(client.id))
    elif word == b"getname" and count == 2:
        out.append(encode(client.name, client.resp) if client.name else null(client.resp))
    elif word == b"setname" and count == 3:
        check_name(args[2])
        client.name = args[2]
        client.label = ""
        out.append(OK)
    elif word == b"setinfo" and count == 4:
        _set_info(client, args[2].lower(), args[3])
        out.append(OK)
    elif word == b"kill" and count > 2:
        _kill(node, client, args)
    elif word == b"pause" and count in (3, 4):
        # WRITE pauses reads as well: the point of a pause is that nothing happens.
        if count == 4 and args[3].lower() not in (b"all", b"write"):
            raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
        node.host.pause(parse_timeout(args[2]))
        out.append(OK)
    elif word == b"unpause" and count == 2:
        node.host.pause(0)
        out.append(OK)
    elif word == b"unblock" and count in (3, 4):
        _unblock(node, client, args)
    elif word == b"reply" and count == 3:
        _reply(client, args[2].lower())
    elif word in (b"no-evict", b"no-touch") and count == 3:
        if args[2].lower() not in (b"on", b"off"):
            raise CommandError(SYNTAX)
        if word == b"no-evict":
            client.no_evict = args[2].lower() == b"on"
        out.append(OK)
    else:
        raise CommandError(_FALLBACK)


def check_name(name: bytes) -> None:
    """Raise CommandError for a client name that would break the lines of CLIENT LIST."""
    for char in name:
        if not 33 <= char <= 126:
            raise CommandError(
                "ERR Client names cannot contain spaces, newlines or special characters."
            )


def _filtered(node: Machine, filters: list[bytes]) -> list[Client]:
    """The clients that CLIENT LIST is to tell about."""
    clients = node.host.clients()
    if filters:
        what = filters[0].lower()
        if what == b"type" and len(filters) == 2:
            if not _is_type(filters[1]):
                clients = []
        elif what == b"id" and len(filters) > 1:
            ids = {parse_integer(text) for text in filters[1:]}
            clients = [client for client in clients if client.id in ids]
        elif what == b"user" and len(filters) == 2:
            clients = [client for client in clients if client.user.name == filters[1]]
        else:
            raise CommandError(SYNTAX)
    return clients


def _is_type(text: bytes) -> bool:
    """Whether ``text`` is the type that all clients have."""
    kind = text.lower()
    if kind == b"normal":
        return True
    if kind in (b"master", b"replica", b"slave", b"pubsub"):
        return False
    raise CommandError("ERR Unknown client type '" + text.decode("utf-8", "replace") + "'")


def _set_info(client: Client, what: bytes, value: bytes) -> None:
    if what not in (b"lib-name", b"lib-ver"):
        raise CommandError("ERR Unrecognized option '" + what.decode("utf-8", "replace") + "'")
    for char in value:
        if not 33 <= char <= 126:
            raise CommandError(
                f"ERR {what.decode()} cannot contain spaces, newlines or special characters."
            )
    if what == b"lib-name":
        client.lib_name = value
    else:
        client.lib_ver = value


def _kill(node: Machine, client: Client, args: list[bytes]) -> None:  # noqa: C901
    """KILL ip:port, or KILL [ID n] [TYPE normal] [ADDR a] [USER name] [SKIPME yes|no]: all that
    match every filter."""
    if len(args) == 3:
        wanted = args[2].decode("utf-8", "replace")
        for other in node.host.clients():
            if node.host.address(other) == wanted:
                node.host.close(other)
                client.out.append(OK)
                return
        raise CommandError("ERR No such client")
    if len(args) % 2:
        raise CommandError(SYNTAX)
    skip_me = True
    matching = node.host.clients()
    for i in range(2, len(args), 2):
        what = args[i].lower()
        value = args[i + 1]
        if what == b"id":
            number = parse_integer(value)
            if number <= 0:
                raise CommandError("ERR client-id should be greater than 0")
            matching = [other for other in matching if other.id == number]
        elif what == b"type":
            if not _is_type(value):
                matching = []
        elif what == b"addr":
            address = value.decode("utf-8", "replace")
            matching = [other for other in matching if node.host.address(other) == address]
        elif what == b"user":
            if value not in node.users.by_name:
                name = value.decode("utf-8", "surrogateescape")
                raise CommandError(f"ERR No such user '{name}'")
            matching = [other for other in matching if other.user.name == value]
        elif what == b"skipme" and value.lower() in (b"yes", b"no"):
            skip_me = value.lower() == b"yes"
        else:
            raise CommandError(SYNTAX)
    if skip_me:
        matching = [other for other in matching if other is not client]
    for other in matching:
        node.host.close(other)
    client.out.append(integer(len(matching)))


def _unblock(node: Machine, client: Client, args: list[bytes]) -> None:
    number = parse_integer(args[2])
    with_error = False
    if len(args) == 4:
        how = args[3].lower()
        if how not in (b"timeout", b"error"):
            raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
        with_error = how == b"error"
    for other in node.host.clients():
        if other.id == number and other.waits_for:
            if with_error:
                node.unblock(other, b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")
            else:
                node.end_wait(other)
            client.out.append(integer(1))
            return
    client.out.append(integer(0))


def _reply(client: Client, mode: bytes) -> None:
    """ON replies OK; OFF and SKIP do not reply; SKIP applies to the next command."""
    if mode == b"on":
        client.reply_mode = REPLY_ON
        client.out.append(OK)
    elif mode == b"off":
        client.reply_mode = REPLY_OFF
    elif mode == b"skip":
        if client.reply_mode != REPLY_OFF:
            client.reply_mode = REPLY_SKIP_NEXT
    else:
        raise CommandError(SYNTAX)
