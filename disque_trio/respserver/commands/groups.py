"""MULTI, EXEC, DISCARD, and WATCH, which has nothing to watch (see ``respserver.groups``)."""

from disque_trio.resp.reply import OK
from disque_trio.respserver.client import Client, CommandGroup
from disque_trio.respserver.command import Command, CommandError
from disque_trio.respserver.machine import Machine


def group_commands() -> list[Command[Machine]]:
    """Return new entries for the table of a machine whose commands may run in groups."""
    return [
        Command("multi", 1, "readonly loading fast @transaction", multi, "",
                "Begin a group of commands, which EXEC runs in one turn.", "connection"),
        Command("exec", 1, "readonly loading @transaction", without_multi, "",
                "Run the commands since MULTI; returns an array of their replies.", "connection"),
        Command("discard", 1, "readonly loading fast @transaction", discard, "",
                "Forget the commands since MULTI.", "connection"),
        Command("watch", -2, "readonly loading fast @transaction", watch, "key [key ...]",
                "Refused: there is nothing to watch.", "connection"),
        Command("unwatch", 1, "readonly loading fast @transaction", unwatch, "",
                "For Redis clients: nothing is watched.", "connection"),
    ]  # fmt: skip


def multi(node: Machine, client: Client, args: list[bytes]) -> None:
    """MULTI."""
    if client.group is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    if client.monitor:
        raise CommandError("ERR a client that said MONITOR cannot say MULTI")
    client.group = CommandGroup()
    client.out.append(OK)


def without_multi(node: Machine, client: Client, args: list[bytes]) -> None:
    """EXEC without MULTI; after one, ``groups.take`` handles it."""
    raise CommandError("ERR EXEC without MULTI")


def discard(node: Machine, client: Client, args: list[bytes]) -> None:
    """DISCARD."""
    if client.group is None:
        raise CommandError("ERR DISCARD without MULTI")
    client.leave_group()
    client.out.append(OK)


def watch(node: Machine, client: Client, args: list[bytes]) -> None:
    """WATCH: there are no keys that could be watched for changes."""
    if client.group is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    raise CommandError(
        "ERR there is nothing to WATCH: there are no keys here. MULTI and EXEC work without it"
    )


def unwatch(node: Machine, client: Client, args: list[bytes]) -> None:
    """UNWATCH."""
    client.out.append(OK)
