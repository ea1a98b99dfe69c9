"""The lists of jobs by stage, and the search for jobs, page by page."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from disque_console.io.job_lists import find_first
from disque_console.io.jobs import PAGE, VISITED, JobPage, Jobs
from disque_console.model.bulk import BULK_ACTIONS
from disque_console.model.job_actions import job_value
from disque_console.model.job_lists import LISTS, MOST, JobList, ListedJobs, listed_for
from disque_console.model.job_rows import JobRow, row_of
from disque_console.model.job_scans import STATES, JobFilter, Place
from disque_console.model.jobs import WITH_WORKER, JobCopy
from disque_console.web.views.clients import named
from disque_console.web.visit import Shown, Visit
from disque_trio.overview.clients import Client

_ALIKE: Final = {"fresh": "queued", "running": WITH_WORKER}
"""What nodes of older releases can look for in place of a stage."""
TOO_OLD: Final = "an older release, which does not know this list"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job on the page. copy, row: None if it was not read, or is gone. time: of the list's
    column. worker: that has the job, if it is known."""

    id: str
    address: str
    copy: JobCopy | None
    row: JobRow | None
    time: float | None = None
    worker: Client | None = None


async def view(visit: Visit) -> Shown:
    """The list of jobs. It is not live, so that rows stay in place while they are selected."""
    wanted = JobFilter.read(visit.query_all)
    values: dict[str, Any] = {
        "wanted": wanted,
        "states": STATES[len(LISTS) :],
        "lists": LISTS,
        "chosen_list": None,
        "counts": None,
        "query": visit.url("", **wanted.query).partition("?")[2],
        "rest": {name: value for name, value in wanted.query.items() if name != "state"},
        "bulk": BULK_ACTIONS,
        "value": job_value,
        "most": VISITED,
        "problems": [],
    }
    listed = wanted.job_list
    if listed is not None:
        found = await _list(visit, wanted, listed)
        if found is not None:
            return Shown(values | found)
        wanted = replace(wanted, state=_ALIKE.get(listed.stage, ""))
    return Shown(values | await _search(visit, wanted))


async def _list(visit: Visit, wanted: JobFilter, listed: JobList) -> dict[str, Any] | None:
    """A page of a list; None: no node knows it, but all can look for something like it."""
    page = visit.number("page", 1, least=1, most=MOST // PAGE)
    calls, nodes = visit.calls, visit.cluster.nodes
    stage = listed.stage
    found, problems, old = await find_first(calls, nodes, wanted, stage, page * PAGE, visit.now)
    if old and not problems and len(old) == len(nodes.here()) and stage in _ALIKE:
        return None
    jobs = found.jobs[(page - 1) * PAGE : page * PAGE]
    workers: dict[tuple[str, int], Client] = {}
    if stage == "running":
        takers = [(job.address, job.copy.client) for job in jobs]
        workers = await visit.recently(("takers", *takers), partial(named, visit, takers, ()))
    rows = [
        JobLine(
            job.copy.id,
            job.address,
            job.copy,
            _row(visit, job.copy),
            listed_for(job.copy, stage, visit.now),
            workers.get((job.address, job.copy.client)),
        )
        for job in jobs
    ]
    count = found.counts[stage]
    last = (page - 1) * PAGE + len(rows)
    return {
        "chosen_list": listed,
        "counts": found.counts,
        "on_disk": found.on_disk,
        "unread": found.unread,
        "rows": rows,
        "first": last - len(rows) + 1,
        "last": last,
        "count": max(count, last),
        "number": page,
        "limit": MOST,
        "begins": page == 1,
        "next": page + 1 if len(found.jobs) >= page * PAGE < min(count, MOST) else 0,
        "problems": [*problems, *((address, TOO_OLD) for address in old)],
    }


async def _search(visit: Visit, wanted: JobFilter) -> dict[str, Any]:
    """A page of a search in no order."""
    place = Place.read(visit.query("from"))
    page = JobPage()
    counts: dict[str, int] | None = None
    if not wanted.problem:
        page = await Jobs(visit.calls, visit.cluster.nodes).page(wanted, place)
        counts = await _counts(visit, wanted)
    rows = [
        JobLine(
            found.id, found.address, found.copy, _row(visit, found.copy) if found.copy else None
        )
        for found in page.jobs
    ]
    return {
        "counts": counts,
        "rows": rows,
        "found": page,
        "begins": not place.node,
        "next": str(page.next) if page.next else "",
        "problems": page.problems,
    }


async def _counts(visit: Visit, wanted: JobFilter) -> dict[str, int] | None:
    """The numbers of jobs in the lists; None if some node cannot tell."""

    async def ask() -> dict[str, int] | None:
        calls, nodes = visit.calls, visit.cluster.nodes
        found: ListedJobs
        found, problems, old = await find_first(calls, nodes, wanted, "fresh", 0, visit.now)
        return None if problems or old else found.counts

    return await visit.recently(("lists", *map(str, wanted.conditions)), ask)


def _row(visit: Visit, copy: JobCopy) -> JobRow:
    return row_of(copy, visit.cluster.policies.of(copy.queue))
