"""The cluster that the options of ``disque`` name, for what looks at all of it."""

import trio

from disque_trio.cli.connection import tls_of
from disque_trio.cli.options import Options
from disque_trio.client.nodes import parse_address
from disque_trio.client.urls import Cluster
from disque_trio.respclient.connection import Connector
from disque_trio.respclient.errors import DisqueError, first_of

PATIENCE = 5.0  # s to wait for a node


def cluster_of(options: Options, program: str) -> Cluster:
    """The nodes in the options, and how to log in. ``program``: names the connections."""
    own = f"unix:{options.socket}" if options.socket is not None else options.where
    found = Cluster(
        options.nodes or (own,),
        options.password,
        options.user,
        tls_of(options) if options.tls else None,
        options.client_name,
    )
    return found.named_after(program)


async def greet(cluster: Cluster) -> str:
    """Try to log in to one of the nodes. Returns the problem, or empty."""
    problem = ""
    try:
        async with trio.open_nursery() as nursery:
            connector = Connector(nursery, cluster.login, PATIENCE)
            for node in cluster.nodes:
                try:
                    connection = await connector.open(parse_address(node))
                    with trio.move_on_after(PATIENCE) as scope:
                        await connection.execute("HELLO")
                    problem = f"{node}: no answer" if scope.cancelled_caught else ""
                except DisqueError as error:
                    problem = f"Could not connect to Disque at {node}: {error}"
                if not problem:
                    break
            nursery.cancel_scope.cancel()
    except* ValueError as group:  # a certificate file is invalid
        problem = str(first_of(group))
    return problem
