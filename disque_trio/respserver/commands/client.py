"""CLIENT and its subcommands."""

from collections.abc import Callable
from typing import Final, TypeAlias

from disque_trio.resp.reply import OK, Text, encode, integer, null
from disque_trio.respserver.client import REPLY_OFF, REPLY_ON, REPLY_SKIP_NEXT, Client
from disque_trio.respserver.command import MANY, CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer, parse_timeout
from disque_trio.respserver.commands.listings import ClientLines
from disque_trio.respserver.machine import Machine

_FALLBACK: Final = (
    "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
)


def client_command(node: Machine, client: Client, args: list[bytes]) -> None:
    """CLIENT and its subcommands."""
    found = _SUBCOMMANDS.get(args[1].lower())
    if found is None or not found[1] <= len(args) <= found[2]:
        raise CommandError(_FALLBACK)
    found[0](node, client, args)


def _list(node: Machine, client: Client, args: list[bytes]) -> None:
    node.batches.read(ClientLines(node, client, args, iter(_filtered(node, args[2:]))))


def _info(node: Machine, client: Client, args: list[bytes]) -> None:
    line = node.host.describe(client) + "\n"
    client.out.append(encode(Text(line.encode("latin-1")), client.resp))


def _id(node: Machine, client: Client, args: list[bytes]) -> None:
    client.out.append(integer(client.id))


def _get_name(node: Machine, client: Client, args: list[bytes]) -> None:
    client.out.append(encode(client.name, client.resp) if client.name else null(client.resp))


def _set_name(node: Machine, client: Client, args: list[bytes]) -> None:
    check_name(args[2])
    client.name = args[2]
    client.label = ""
    client.origin = b""
    client.out.append(OK)


def _pause(node: Machine, client: Client, args: list[bytes]) -> None:
    # WRITE pauses reads as well: the point of a pause is that nothing happens.
    if len(args) == 4 and args[3].lower() not in (b"all", b"write"):
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    node.host.pause(parse_timeout(args[2]))
    client.out.append(OK)


def _unpause(node: Machine, client: Client, args: list[bytes]) -> None:
    node.host.pause(0)
    client.out.append(OK)


def _switch(node: Machine, client: Client, args: list[bytes]) -> None:
    """NO-EVICT, and NO-TOUCH, which has no effect."""
    if args[2].lower() not in (b"on", b"off"):
        raise CommandError(SYNTAX)
    if args[1].lower() == b"no-evict":
        client.no_evict = args[2].lower() == b"on"
    client.out.append(OK)


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


def _set_info(node: Machine, client: Client, args: list[bytes]) -> None:
    what, value = args[2].lower(), args[3]
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
    client.out.append(OK)


def _kill(node: Machine, client: Client, args: list[bytes]) -> None:
    """KILL: one client by its address, or all that match every filter."""
    if len(args) == 3:
        for other in _with_address(node, node.host.clients(), args[2]):
            node.host.close(other)
            client.out.append(OK)
            return
        raise CommandError("ERR No such client")
    if len(args) % 2:
        raise CommandError(SYNTAX)
    skip_me = True
    matching = node.host.clients()
    for i in range(2, len(args), 2):
        if args[i].lower() == b"skipme" and args[i + 1].lower() in (b"yes", b"no"):
            skip_me = args[i + 1].lower() == b"yes"
        else:
            matching = _matching(node, matching, args[i].lower(), args[i + 1])
    if skip_me:
        matching = [other for other in matching if other is not client]
    for other in matching:
        node.host.close(other)
    client.out.append(integer(len(matching)))


def _matching(node: Machine, clients: list[Client], what: bytes, value: bytes) -> list[Client]:
    """Those of ``clients`` that match a filter of KILL."""
    if what == b"id":
        number = parse_integer(value)
        if number <= 0:
            raise CommandError("ERR client-id should be greater than 0")
        return [other for other in clients if other.id == number]
    if what == b"type":
        return clients if _is_type(value) else []
    if what == b"addr":
        return _with_address(node, clients, value)
    if what == b"user":
        if value not in node.users.by_name:
            name = value.decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR No such user '{name}'")
        return [other for other in clients if other.user.name == value]
    raise CommandError(SYNTAX)


def _with_address(node: Machine, clients: list[Client], address: bytes) -> list[Client]:
    wanted = address.decode("utf-8", "replace")
    return [other for other in clients if node.host.address(other) == wanted]


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


def _reply(node: Machine, client: Client, args: list[bytes]) -> None:
    """ON replies OK; OFF and SKIP do not reply; SKIP applies to the next command."""
    mode = args[2].lower()
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


_Serve: TypeAlias = Callable[[Machine, Client, list[bytes]], None]
# By word: what serves it, and how many arguments it has at least and at most.
_SUBCOMMANDS: Final[dict[bytes, tuple[_Serve, int, int]]] = {
    b"list": (_list, 2, MANY),
    b"info": (_info, 2, 2),
    b"id": (_id, 2, 2),
    b"getname": (_get_name, 2, 2),
    b"setname": (_set_name, 3, 3),
    b"setinfo": (_set_info, 4, 4),
    b"kill": (_kill, 3, MANY),
    b"pause": (_pause, 3, 4),
    b"unpause": (_unpause, 2, 2),
    b"unblock": (_unblock, 3, 4),
    b"reply": (_reply, 3, 3),
    b"no-evict": (_switch, 3, 3),
    b"no-touch": (_switch, 3, 3),
}
