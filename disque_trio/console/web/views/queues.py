"""The list of queues."""

from typing import Final

from disque_trio.console.model.queues import KEYS
from disque_trio.console.web.visit import Shown, Visit

SIZES: Final = (50, 100)
UP_FIRST: Final = frozenset({"name", "paused"})
"""What is sorted upwards at first; of the rest people look for the largest."""


async def view(visit: Visit) -> Shown:
    """All queues, sorted and searched, a page at a time."""
    sort = visit.query("sort", "length")
    if sort not in KEYS:
        sort = "length"
    order = visit.query("order", "up" if sort in UP_FIRST else "down")
    search = visit.query("search").strip()
    size = visit.number("size", SIZES[0])
    size = size if size in SIZES else SIZES[0]
    found = visit.cluster.queues.find(search, sort, descending=order == "down")
    pages = max(1, -(-len(found) // size))
    page = visit.number("page", 1, least=1, most=pages)
    rows = found[(page - 1) * size : page * size]
    names = [row.name for row in rows]
    if visit.console.looks.at(names, visit.now):
        await visit.console.looks.wait_told(0.1)
        rows = [row for row in map(visit.cluster.queues.row, names) if row is not None]
    policies = {row.name: visit.cluster.policies.of(row.name) for row in rows}
    return Shown(
        {
            "rows": rows,
            "policies": policies,
            "count": len(found),
            "all": len(visit.cluster.queues),
            "search": search,
            "sort": sort,
            "order": order,
            "page_number": page,
            "pages_in_all": pages,
            "size": size,
            "sizes": SIZES,
            "up_first": UP_FIRST,
            "first": (page - 1) * size + 1,
        }
    )
