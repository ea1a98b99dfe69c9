"""Bulk actions on all jobs that match a filter, and their progress."""

from disque_console.model.actions import ACTIONS
from disque_console.model.bulk import MOST
from disque_console.web.visit import Missing, Shown, Visit


async def view(visit: Visit) -> Shown:
    """A run of this visitor."""
    run = visit.console.bulks.get(visit.query("run"), visit.visitor.form_id)
    if run is None:
        raise Missing("This run no longer exists: runs are kept for an hour.")
    total = visit.cluster.nodes.total("registered_jobs")
    return Shown({"run": run, "action": ACTIONS[run.action], "most": MOST, "total": total})
