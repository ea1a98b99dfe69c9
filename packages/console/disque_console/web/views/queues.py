"""The list of queues."""

from typing import Final

from disque_console.model.paging import page_of
from disque_console.web.visit import Shown, Visit
from disque_trio.overview.queues import KEYS

SIZES: Final = (50, 100)
UP_FIRST: Final = frozenset({"name", "paused"})
"""Columns that sort ascending at first; the others start with the largest."""


async def view(visit: Visit) -> Shown:
    """All queues, sorted, searched and paged."""
    sort, order = visit.sorting(KEYS, "length", UP_FIRST)
    search = visit.query("search").strip()
    size = visit.number("size", SIZES[0])
    size = size if size in SIZES else SIZES[0]
    found = visit.cluster.queues.find(search, sort, descending=order == "down")
    paging = page_of(found, visit.number("page", 1, least=1), size)
    rows = paging.rows
    names = [row.name for row in rows]
    visit.console.looks.counts.at(visit.now)
    here = [state.address for state in visit.cluster.nodes.here()]
    counted = visit.cluster.queues.counted_since(here)
    if counted is None and visit.console.looks.at(names, visit.now):
        await visit.console.looks.wait_reported(0.1)
        rows = [row for row in map(visit.cluster.queues.row, names) if row is not None]
    policies = {row.name: visit.cluster.policies.of(row.name) for row in rows}
    return Shown(
        {
            "rows": rows,
            "policies": policies,
            "paging": paging,
            "all": len(visit.cluster.queues),
            "search": search,
            "sort": sort,
            "order": order,
            "size": size,
            "sizes": SIZES,
            "up_first": UP_FIRST,
            "counted": None if counted is None else max(visit.now - counted, 0.0),
        }
    )
