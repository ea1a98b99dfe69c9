"""Clients of users with limited rights, on a node without a process."""

from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from tests.support.node_bench import Bench


def client_of(bench: Bench, *rules: str) -> Client:
    """A client of the user ``someone``, who has all commands and ``rules``."""
    user = User(b"someone", Catalog(bench.node.commands.values()))
    user.set([b"on", b"nopass", b"+@all", *[rule.encode() for rule in rules]])
    client = bench.client()
    client.log_in(user)
    return client
