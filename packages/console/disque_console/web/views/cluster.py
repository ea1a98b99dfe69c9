"""The nodes of the cluster."""

from typing import Final

from disque_console.model.budgets import budgets
from disque_console.model.membership import members
from disque_console.web.visit import Shown, Visit

MATRIX: Final = 30  # nodes; the table of links is not shown for more


async def view(visit: Visit) -> Shown:
    """Nodes, their links, actions, and what users with a budget use."""
    found = members(visit.cluster.nodes.all())
    users = budgets(visit.cluster.nodes.all())
    here = [state.address for state in visit.cluster.nodes.here()]
    shown = {"members": found, "here": here, "matrix": len(found) <= MATRIX, "users": users}
    return Shown(shown)
