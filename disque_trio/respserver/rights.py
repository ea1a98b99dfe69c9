"""Enforces what the users of clients may do, and records refusals for ACL LOG.

Not used for clients that may do everything (``Client.unrestricted``).
"""

from typing import Protocol

from disque_trio.resp.reply import error
from disque_trio.respserver.access import NO_QUEUE, PATTERN, TAKE
from disque_trio.respserver.acl.catalog import word_of
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.host import Host


class Guarded(Protocol):
    """Interface of the machine whose clients have users."""

    now: int
    host: Host
    users: Users
    in_group: bool

    def standing(self, client: Client) -> list[tuple[bytes, list[bytes]]]:
        """Return what ``client`` gets without asking again; see ``Machine``."""

    def users_changed(self) -> None:
        """See ``Machine``."""


def not_permitted(
    machine: Guarded, client: Client, command: AnyCommand, args: list[bytes]
) -> bytes:
    """The error for ``args``, a ``command``, if the user of ``client`` must not run it; then it is
    also recorded for ACL LOG. Otherwise empty."""
    word = word_of(command, args)
    accesses, problem = command.accesses(machine, args)
    refused = client.user.refusal("" if command.unauthenticated else word, accesses)
    if refused is None:
        # In a group, it is refused when it runs.
        return error(problem) if problem and client.group is None else b""
    reason, object = refused
    note_refusal(machine, client, reason, object, client.user.name)
    if reason == "key":
        return error(NO_QUEUE)
    return error(f"NOPERM this user has no permissions to run the '{word}' command")


def note_refusal(machine: Guarded, client: Client, reason: str, object: bytes, user: bytes) -> None:
    """Record for ACL LOG what was refused to ``client``, which is, or wanted to be, ``user``."""
    grouped = machine.in_group or client.group is not None
    context = "multi" if grouped else "toplevel"
    whose = machine.host.describe(client)
    machine.users.log.add(machine.now, reason, context, object, user, whose)


def users_changed(machine: Guarded) -> None:
    """Apply changed users to connected clients. Disconnects clients that wait for, or get, what
    their users may no longer have."""
    anybody = machine.users.default.open
    for client in machine.host.clients():
        client.log_in(client.user, client.authenticated or (anybody and not client.user.full))
        close_unless_lawful(machine, client)
    machine.host.users_changed()
    machine.users_changed()


def close_unless_lawful(machine: Guarded, client: Client) -> None:
    """Disconnect ``client`` if it waits for, or gets, what its user may not have."""
    if not (client.unrestricted or _may_go_on(machine, client)):
        machine.host.close(client)


def _may_go_on(machine: Guarded, client: Client) -> bool:
    """Whether ``client`` may have what it gets without asking again."""
    for name, queues in machine.standing(client):
        word = machine.users.catalog.proper(name.decode())  # rename-command does not matter here
        accesses = [(queue, TAKE | PATTERN) for queue in queues]
        if client.user.refusal(word, accesses) is not None:
            return False
    return True


def forget_user(machine: Guarded, user: User) -> None:
    """Disconnect the clients of ``user``, which is gone: they may no longer do anything."""
    for client in machine.host.clients():
        if client.user is user:
            client.log_in(machine.users.default, False)
            machine.host.close(client)
