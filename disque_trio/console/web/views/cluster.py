"""The nodes of the cluster."""

from typing import Final

from disque_trio.console.model.membership import members
from disque_trio.console.web.visit import Shown, Visit

MATRIX: Final = 30  # nodes; the table of links is not shown for more


async def view(visit: Visit) -> Shown:
    """Nodes, their links, and actions."""
    found = members(visit.cluster.nodes.all())
    here = [state.address for state in visit.cluster.nodes.here()]
    return Shown({"members": found, "here": here, "matrix": len(found) <= MATRIX})
