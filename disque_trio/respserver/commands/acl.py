"""ACL and its subcommands: users, and what they may do."""

from collections.abc import Callable
from typing import Final

from disque_trio.resp.reply import OK, Double, Simple, Value, encode, integer, null
from disque_trio.respserver.acl.catalog import word_of
from disque_trio.respserver.acl.log import AclEntry
from disque_trio.respserver.acl.permissions import Permissions
from disque_trio.respserver.acl.user import DEFAULT, SetUserError
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import MANY, CommandError
from disque_trio.respserver.commands.arguments import parse_integer, wrong_arity
from disque_trio.respserver.commands.connection import find_user
from disque_trio.respserver.commands.listings import UserLines, UserNames
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.rights import forget_user, users_changed

MOST_BITS: Final = 4096
MAX_ORIGIN: Final = 128  # bytes
_SHOWN: Final = 10  # entries of ACL LOG to return
_HELP: Final = """\
ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
CHECK <origin> <username> <password>
    Returns 1 if the user may log in with the password, or 0. A wrong one counts
    for <origin>, an address whose client you are asking for, not for yours.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.
HELP
    Prints this help.
"""


def acl(node: Machine, client: Client, args: list[bytes]) -> None:
    """ACL and its subcommands."""
    word = args[1].lower()
    found = _SUBCOMMANDS.get(word)
    if found is None:
        raise _unknown("unknown subcommand", args[1])
    handler, least, most = found
    if not least <= len(args) <= most:
        if word in (b"cat", b"genpass", b"log"):
            raise _unknown("unknown subcommand or wrong number of arguments for", args[1])
        raise wrong_arity(f"acl|{word.decode()}")
    handler(node, client, args)


def _unknown(problem: str, name: bytes) -> CommandError:
    return CommandError(f"ERR {problem} '{_text(name)}'. Try ACL HELP.")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _cat(node: Machine, client: Client, args: list[bytes]) -> None:
    by_category = node.users.catalog.by_category
    names: list[str]
    if len(args) == 2:
        names = list(by_category)
    else:
        category = args[2].decode("latin-1").lower()
        if category not in by_category:
            raise CommandError(f"ERR Unknown category '{_text(args[2])}'")
        names = [*by_category[category], *_other_names(node, category)]
    client.out.append(encode([name.encode() for name in names], client.resp))


def _other_names(node: Machine, category: str) -> list[str]:
    """Other names of commands in ``category``."""
    return [
        command.name
        for command in node.commands.values()
        if command.alias_of and category in command.categories
    ]


def _check(node: Machine, client: Client, args: list[bytes]) -> None:
    origin = args[2]
    if not 0 < len(origin) <= MAX_ORIGIN or not all(0x21 <= byte <= 0x7E for byte in origin):
        raise CommandError(
            f"ERR the origin must be 1 to {MAX_ORIGIN} visible ASCII characters without spaces"
        )
    user = find_user(node, client, origin.decode("ascii"), origin, args[3], args[4])
    client.out.append(integer(int(user is not None)))


def _deluser(node: Machine, client: Client, args: list[bytes]) -> None:
    names = args[2:]
    if DEFAULT in names:
        raise CommandError("ERR The 'default' user cannot be removed")
    count = 0
    for name in names:
        user = node.users.delete(name)
        if user is not None:
            count += 1
            forget_user(node, user)
    if count:
        users_changed(node)
    client.out.append(integer(count))


def _dryrun(node: Machine, client: Client, args: list[bytes]) -> None:
    user = node.users.by_name.get(args[2])
    if user is None:
        raise CommandError(f"ERR User '{_text(args[2])}' not found")
    request = args[3:]
    command = node.find_command(request[0])
    if command is None:
        raise CommandError(f"ERR Command '{_text(request[0])}' not found")
    if not command.min_args <= len(request) <= command.max_args:
        raise wrong_arity(command.name)
    word = word_of(command, request)
    if command.parts and len(request) > 1 and "|" not in word:
        raise CommandError(f"ERR Command '{_text(request[0])}' not found")
    accesses, _ = command.accesses(node, request)
    refused = user.refusal("" if command.unauthenticated else word, accesses)
    if refused is None:
        client.out.append(OK)
        return
    reason, object = refused
    if reason == "key":
        answer = b"This user has no permissions to access the '%b' key" % object
    else:
        answer = b"This user has no permissions to run the '%b' command" % object
    client.out.append(encode(answer, client.resp))


def _genpass(node: Machine, client: Client, args: list[bytes]) -> None:
    bits = parse_integer(args[2]) if len(args) == 3 else 256
    if not 0 < bits <= MOST_BITS:
        raise CommandError(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a "
            f"positive number up to {MOST_BITS}"
        )
    digits = (bits + 3) // 4
    password = node.host.entropy((digits + 1) // 2).hex()[:digits]
    client.out.append(encode(password.encode(), client.resp))


def _getuser(node: Machine, client: Client, args: list[bytes]) -> None:
    user = node.users.by_name.get(args[2])
    if user is None:
        client.out.append(null(client.resp))
        return
    flags = [b"on" if user.enabled else b"off"]
    if user.nopass:
        flags.append(b"nopass")
    answer: dict[bytes, Value] = {
        b"flags": list(flags),
        b"passwords": list(user.passwords),
        **_permissions(user.root),
        b"selectors": [_permissions(selector) for selector in user.selectors],
    }
    if user.budget is not None:  # Redis has no such field
        answer[b"limits"] = user.budget.describe()
    client.out.append(encode(answer, client.resp))


def _permissions(permissions: Permissions) -> dict[bytes, Value]:
    return {
        b"commands": permissions.describe_commands().encode("latin-1"),
        b"keys": permissions.describe_queues(),
        b"channels": permissions.describe_channels(),
    }


def _help(node: Machine, client: Client, args: list[bytes]) -> None:
    client.out.append(encode([Simple(line.encode()) for line in _HELP.splitlines()], client.resp))


def _list(node: Machine, client: Client, args: list[bytes]) -> None:
    node.batches.read(UserLines(node, client, args))


def _load(node: Machine, client: Client, args: list[bytes]) -> None:
    _answer(client, node.host.load_users())


def _save(node: Machine, client: Client, args: list[bytes]) -> None:
    _answer(client, node.host.save_users())


def _answer(client: Client, problem: str | None) -> None:
    if problem is not None:
        raise CommandError(problem)
    client.out.append(OK)


def _log(node: Machine, client: Client, args: list[bytes]) -> None:
    log = node.users.log
    if len(args) == 3 and args[2].lower() == b"reset":
        log.entries.clear()
        client.out.append(OK)
        return
    count = max(parse_integer(args[2]), 0) if len(args) == 3 else _SHOWN
    answer: list[Value] = [_entry(node, entry) for entry in list(log.entries)[:count]]
    client.out.append(encode(answer, client.resp))


def _entry(node: Machine, entry: AclEntry) -> dict[bytes, Value]:
    return {
        b"count": entry.count,
        b"reason": entry.reason.encode(),
        b"context": entry.context.encode(),
        b"object": entry.object,
        b"username": entry.user,
        b"age-seconds": Double(max(node.now - entry.time, 0) / 1000),
        b"client-info": entry.client.encode("latin-1"),
    }


def _setuser(node: Machine, client: Client, args: list[bytes]) -> None:
    try:
        node.users.set(args[2], args[3:])
    except SetUserError as wrong:
        raise CommandError(f"ERR {wrong}") from wrong
    users_changed(node)
    client.out.append(OK)


def _users(node: Machine, client: Client, args: list[bytes]) -> None:
    node.batches.read(UserNames(node, client, args))


def _whoami(node: Machine, client: Client, args: list[bytes]) -> None:
    client.out.append(encode(client.user.name, client.resp))


_SUBCOMMANDS: Final[
    dict[bytes, tuple[Callable[[Machine, Client, list[bytes]], None], int, int]]
] = {
    b"cat": (_cat, 2, 3),
    b"check": (_check, 5, 5),
    b"deluser": (_deluser, 3, MANY),
    b"dryrun": (_dryrun, 4, MANY),
    b"genpass": (_genpass, 2, 3),
    b"getuser": (_getuser, 3, 3),
    b"help": (_help, 2, 2),
    b"list": (_list, 2, 2),
    b"load": (_load, 2, 2),
    b"log": (_log, 2, 3),
    b"save": (_save, 2, 2),
    b"setuser": (_setuser, 3, MANY),
    b"users": (_users, 2, 2),
    b"whoami": (_whoami, 2, 2),
}
