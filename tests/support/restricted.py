"""Clients of users with limited rights, on servers without a process."""

from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine
from tests.support.node_bench import Bench


def log_in(client: Client, machine: Machine, *rules: str) -> None:
    """Make ``client`` one of the user ``someone``, who has all commands and ``rules``."""
    user = User(b"someone", Catalog(machine.commands.values()))
    user.set([b"on", b"nopass", b"+@all", *[rule.encode() for rule in rules]])
    client.log_in(user)


def client_of(bench: Bench, *rules: str) -> Client:
    """A client of the user ``someone`` on a node."""
    client = bench.client()
    log_in(client, bench.node, *rules)
    return client


def reply_to(machine: Machine, client: Client, rule: str, words: list[bytes], now: int) -> bytes:
    """What bananaq, or another ``machine`` without a process, replies to ``client`` of the user
    ``someone``, which is then forgotten. ``now``: ms since the epoch."""
    log_in(client, machine, rule)
    machine.command(client, words, now)
    machine.commit()
    reply = b"".join(client.out)
    machine.forget_client(client)
    return reply
