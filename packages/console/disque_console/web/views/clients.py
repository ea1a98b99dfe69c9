"""The clients page."""

from typing import Final

import trio

from disque_console.model.clients import KEYS, Client, find, read_clients
from disque_console.model.paging import page_of
from disque_console.web.answers import parted
from disque_console.web.visit import Shown, Visit

MANY: Final = 2_000  # clients in total; the list is then updated less often
MANY_KEPT: Final = 20.0  # s
UP_FIRST: Final = frozenset({"node", "address", "name", "user", "command"})

Found = tuple[list[Client], list[tuple[str, str]]]


async def all_clients(visit: Visit) -> Found:
    """The clients of all nodes, and the nodes that did not answer."""

    async def ask() -> Found:
        good, problems = parted(await visit.calls.every("CLIENT", "LIST"))
        clients: list[Client] = []
        for address, reply in good:
            if isinstance(reply, bytes):
                clients += read_clients(address, reply.decode("utf-8", "replace"))
            await trio.lowlevel.checkpoint()
        return clients, problems

    many = visit.cluster.nodes.total("connected_clients") > MANY
    if many:
        return await visit.recently("clients", ask, MANY_KEPT)
    return await visit.recently("clients", ask)


async def view(visit: Visit) -> Shown:
    """All clients, sorted, searched and paged."""
    sort, order = visit.sorting(KEYS, "node", UP_FIRST)
    wanted = visit.query("search").strip()
    clients, problems = await all_clients(visit)
    found = find(clients, wanted, sort, order == "down")
    return Shown(
        {
            "paging": page_of(found, visit.number("page", 1, least=1)),
            "problems": problems,
            "search": wanted,
            "sort": sort,
            "order": order,
            "up_first": UP_FIRST,
            "all": len(clients),
            "slow": len(clients) > MANY,
        }
    )
