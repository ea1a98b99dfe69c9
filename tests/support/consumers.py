"""Clients to which jobs are pushed."""

from disque_trio.respserver.client import Client
from tests.support.node_bench import Bench


def consumer(bench: Bench, *words: str | int) -> Client:
    """Return a client that consumes q, or what ``words`` say."""
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "CONSUME", *(words or ("q", "CREDIT", 2))) == b"OK"
    return client


def pushed(bench: Bench, client: Client) -> list[bytes]:
    """Return the ids of the jobs pushed to ``client``."""
    found = bench.pushes(client)
    assert all(message[0] == b"job" for message in found)
    return [message[2] for message in found]
