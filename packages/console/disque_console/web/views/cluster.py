"""The nodes of the cluster."""

from typing import Final

from disque_console.model.budgets import budgets
from disque_console.model.membership import members, together
from disque_console.web.visit import Shown, Visit
from disque_trio.overview.attention import alarms_of
from disque_trio.overview.groups import groups

MATRIX: Final = 30  # nodes; the table of links is not shown for more


async def view(visit: Visit) -> Shown:
    """Nodes, their links, actions, and what users with a budget use."""
    states = visit.cluster.nodes.all()
    found = members(states)
    counted = groups(states)
    return Shown(
        {
            "members": found,
            "nodes": together(found, counted),
            "here": [state.address for state in states if state.here],
            "matrix": len(found) <= MATRIX,
            "users": budgets(states),
            "together": alarms_of(counted),
            "alarms": {state.address: state.alarms for state in states},
        }
    )
