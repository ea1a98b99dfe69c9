"""Connection commands: AUTH, HELLO, PING and those that Redis clients send when they connect."""

from disque_trio.resp.reply import OK, PONG, Value, bulk, encode
from disque_trio.respserver.acl.user import DEFAULT, User
from disque_trio.respserver.client import LONG_REPLY, REPLY_ON, Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer, wrong_arity
from disque_trio.respserver.commands.client import check_name
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.over_budget import connections_refused
from disque_trio.respserver.rights import close_unless_lawful, note_refusal
from disque_trio.version import VERSION


def auth(node: Machine, client: Client, args: list[bytes]) -> None:
    """AUTH."""
    if len(args) > 3:
        raise CommandError(SYNTAX)
    _authenticate(node, client, args[0], args[1:])
    client.out.append(OK)


def _authenticate(node: Machine, client: Client, how: bytes, words: list[bytes]) -> None:
    """Log ``client`` in with ``words``, a password that may follow a user; ``how``: the command
    that had them."""
    users = node.users
    by_password = len(words) == 1
    name = DEFAULT if by_password else words[0]
    # As in Disque; but if there are users, naming one that needs no password logs in, as in Redis.
    if users.default.open and (by_password or (name == DEFAULT and users.only_password)):
        raise CommandError("ERR Client sent AUTH, but no password is set")
    user = find_user(node, client, node.host.ip(client), how, name, words[-1])
    if user is None:
        plain = users.only_password
        if plain and not users.default.open:
            # As in Disque; if there are users, it stays logged in as before, as in Redis.
            client.log_in(users.default, False)
        if plain and by_password:
            raise CommandError("ERR invalid password")
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    refusal = connections_refused(node, user, client)
    if refusal:
        raise CommandError(refusal)
    client.log_in(user)
    close_unless_lawful(node, client)


def find_user(
    node: Machine, client: Client, origin: str, what: bytes, name: bytes, password: bytes
) -> User | None:
    """The user who may log in as ``name`` with ``password``; None: nobody may. A wrong password
    counts for ``origin``, an IP address or other text (empty: it is not counted); for ACL LOG it is
    ``what`` that ``client`` was refused. Raises ``CommandError`` if there were too many."""
    logins = node.users.logins
    wait = logins.wait(origin, name, password, node.now)
    if wait:
        note_refusal(node, client, "auth-limit", what, name)
        raise CommandError(
            f"TRYAGAIN too many wrong passwords from this address, wait {-(-wait // 1000)} s "
            "(auth-failures-per-minute)"
        )
    user = node.users.find(name, password)
    if user is None:
        logins.failed(origin, name, password, node.now)
        note_refusal(node, client, "auth", what, name)
    else:
        logins.succeeded(origin, name, node.now)
    return user


def hello(node: Machine, client: Client, args: list[bytes]) -> None:
    """HELLO, as in Redis."""
    if len(args) > 1 and args[1] not in (b"2", b"3"):
        parse_integer(args[1])
        raise CommandError("NOPROTO unsupported protocol version")
    name: bytes | None = None
    credentials: list[bytes] = []
    i = 2
    while i < len(args):
        option = args[i].lower()
        if option == b"auth" and i + 2 < len(args):
            credentials = args[i + 1 : i + 3]
            i += 3
        elif option == b"setname" and i + 1 < len(args):
            name = args[i + 1]
            check_name(name)
            i += 2
        else:
            raise CommandError(
                "ERR Syntax error in HELLO option '" + args[i].decode("utf-8", "replace") + "'"
            )
    if credentials:
        _authenticate(node, client, args[0], credentials)
    if not client.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
            "select the RESP protocol version at the same time"
        )
    if name is not None:
        client.name = name
        client.label = ""
        client.origin = b""
    if len(args) > 1:
        client.resp = int(args[1])
        if client.resp != 3:
            node.stop_pushing(client)
    answer: dict[bytes, Value] = {
        b"server": node.product.encode(),
        b"version": VERSION.encode(),
        b"proto": client.resp,
        b"id": client.id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    }
    client.out.append(encode(answer, client.resp))


def ping(node: Machine, client: Client, args: list[bytes]) -> None:
    """PING."""
    if len(args) > 2:
        raise wrong_arity("ping")
    if len(args) == 1:
        client.out.append(PONG)
    else:
        _say(client, args[1])


def echo(node: Machine, client: Client, args: list[bytes]) -> None:
    """ECHO."""
    _say(client, args[1])


def _say(client: Client, message: bytes) -> None:
    """Reply with ``message``, which may have hundreds of MB."""
    if len(message) < LONG_REPLY:
        client.out.append(bulk(message))
    else:
        client.out += (b"$%d\r\n" % len(message), message, b"\r\n")
        client.long = True


def select(node: Machine, client: Client, args: list[bytes]) -> None:
    """SELECT 0, for Redis clients: there is only one database."""
    if parse_integer(args[1]) != 0:
        raise CommandError("ERR DB index is out of range")
    client.out.append(OK)


def quit(node: Machine, client: Client, args: list[bytes]) -> None:
    """QUIT: reply, then close the connection."""
    client.out.append(OK)
    client.close = True


def reset(node: Machine, client: Client, args: list[bytes]) -> None:
    """RESET: as if the client had just connected."""
    client.resp = 2
    node.stop_pushing(client)
    client.name = b""
    client.label = ""
    client.origin = b""
    client.reply_mode = REPLY_ON
    client.no_evict = False
    client.leave_group()
    if client.monitor:
        client.monitor = False
        node.monitors.remove(client)
    client.leave()
    default = node.users.default
    client.log_in(default, default.open and not default.full)
    client.out.append(b"+RESET\r\n")
