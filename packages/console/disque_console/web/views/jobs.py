"""The search for jobs, page by page."""

from disque_console.io.jobs import VISITED, JobPage, Jobs
from disque_console.model.bulk import BULK_ACTIONS
from disque_console.model.job_actions import job_value
from disque_console.model.job_scans import STATES, JobFilter, Place
from disque_console.web.visit import Shown, Visit


async def view(visit: Visit) -> Shown:
    """The list of jobs. It is not live, so that rows stay in place while they are selected."""
    wanted = JobFilter.read(visit.query_all)
    place = Place.read(visit.query("from"))
    page = JobPage()
    if not wanted.problem:
        page = await Jobs(visit.calls, visit.cluster.nodes).page(wanted, place)
    return Shown(
        {
            "wanted": wanted,
            "states": STATES,
            "found": page,
            "query": visit.url("", **wanted.query).partition("?")[2],
            "bulk": BULK_ACTIONS,
            "value": job_value,
            "begins": not place.node,
            "next": str(page.next) if page.next else "",
            "most": VISITED,
        }
    )
