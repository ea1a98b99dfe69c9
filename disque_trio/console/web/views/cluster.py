"""The nodes of the cluster."""

from typing import Final

from disque_trio.console.model.membership import members
from disque_trio.console.web.visit import Shown, Visit

MATRIX: Final = 30  # nodes: more are no table of who is connected to whom


async def view(visit: Visit) -> Shown:
    """Nodes, their links, and what can be done with them."""
    found = members(visit.cluster.nodes.all())
    here = [state.address for state in visit.cluster.nodes.here()]
    return Shown({"members": found, "here": here, "matrix": len(found) <= MATRIX})
