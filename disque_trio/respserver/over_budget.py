"""Refusals because of the budget of a user (see ``acl.budget``): their text, and who hears of
them."""

from typing import Protocol

from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.host import Host


class Limiting(Protocol):
    """Interface of the machine whose users have budgets."""

    now: int
    host: Host


def note_limit(machine: Limiting, user: User, rule: str, text: str) -> str:
    """Count that ``user`` has reached the limit of ``rule``, and tell the host, at most once a
    minute. Returns ``text``."""
    user.use.refused += 1
    if user.use.tells(rule, machine.now):
        machine.host.limit_reached(text)
    return text


def connections_refused(machine: Limiting, user: User, client: Client | None = None) -> str:
    """Return why ``client``, or a new one, must not become ``user`` now; empty: it may."""
    if not user.full or (client is not None and client.counted is user.use):
        return ""
    assert user.budget is not None
    text = (
        f"LIMIT user {name_of(user)} may have {user.budget.connections} connections "
        f"(%maxconnections), {user.use.connections} are open"
    )
    return note_limit(machine, user, "maxconnections", text)


def name_of(user: User) -> str:
    """The name of ``user`` as text."""
    return user.name.decode("utf-8", "replace")
