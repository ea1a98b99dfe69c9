"""The clients page."""

from collections.abc import Iterable
from typing import Final

import trio

from disque_console.model.clients import KEYS, find
from disque_console.model.paging import page_of
from disque_console.web.answers import parted
from disque_console.web.visit import Shown, Visit
from disque_trio.overview.clients import Client, read_clients

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


async def named(
    visit: Visit, takers: Iterable[tuple[str, int]], clients: Iterable[Client]
) -> dict[tuple[str, int], Client]:
    """Clients by node and id: those that are known, and the ``takers`` that are not."""
    found = {(client.node, client.id): client for client in clients}
    missing: dict[str, set[int]] = {}
    for address, id in takers:
        if id and (address, id) not in found:
            missing.setdefault(address, set()).add(id)
    for address, ids in missing.items():
        reply = await visit.calls.to(address, "CLIENT", "LIST", "ID", *sorted(ids))
        if isinstance(reply, bytes):
            for client in read_clients(address, reply.decode("utf-8", "replace")):
                found[address, client.id] = client
    return found


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
