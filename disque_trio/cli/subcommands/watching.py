"""Reads the state of a cluster as ``disque --top`` does: rates need two readings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from disque_trio.cli.cluster import cluster_of, greet
from disque_trio.cli.subcommands.subcommand import Call, Failure
from disque_trio.client.nodes import parse_address
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.poller import Poller

READINGS: Final = 2
EACH: Final = 1.0  # s between them
SETTLED_IN: Final = 20.0  # s to wait for nodes


@asynccontextmanager
async def watched(call: Call) -> AsyncIterator[tuple[Cluster, Looks, Poller]]:
    """The cluster, read twice; it is kept up to date meanwhile.

    Raises:
        Failure: no node can be reached.
    """
    address = cluster_of(call.options, f"disque-{call.printer.name}")
    if problem := await greet(address):
        raise Failure(problem)
    cluster, looks = Cluster(), Looks()
    seeds = [parse_address(node) for node in address.nodes]
    poller = Poller(cluster, seeds, address.login, looks, each=EACH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.move_on_after(SETTLED_IN):
            while not settled(cluster):
                await poller.news.wait()
        yield cluster, looks, poller
        nursery.cancel_scope.cancel()


def settled(cluster: Cluster) -> bool:
    """Whether all nodes have reported all their queues twice, or cannot be reached."""
    states = cluster.nodes.all()
    return bool(states) and all(state.rounds >= READINGS or state.problem for state in states)


def complain(call: Call, cluster: Cluster) -> int:
    """Tell the user which nodes are left out. Returns the exit status."""
    status = 0
    for state in cluster.nodes.all():
        why = state.problem or state.refused or ("" if state.rounds else "no reply in time")
        if why:
            call.printer.complain(f"{state.address} is left out: {why}")
            status = 1
    return status
