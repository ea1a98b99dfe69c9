"""What the API tells: the cluster, its nodes, queues, jobs, workers and schedules."""

from collections.abc import Iterable
from typing import Any, Final

from disque_console.io.jobs import Extent, Jobs
from disque_console.model.actions import ACTIONS
from disque_console.model.job_scans import JobFilter, Place
from disque_console.model.schedules import merged
from disque_console.web.answers import parted
from disque_console.web.api.endpoint import Given, Problem
from disque_console.web.views.clients import all_clients
from disque_console.web.views.jobs import TOO_OLD
from disque_console.web.views.workers import all_reports, all_running
from disque_console.web.visit import Missing, Visit
from disque_trio.overview.nodes import COUNTED
from disque_trio.overview.records import job_fields, node_fields, queue_fields
from disque_trio.overview.workers import worker_fields
from disque_trio.overview.workers import workers as merged_workers

BODY: Final = 1_024  # bytes of a body in a list
SECONDS: Final = 2.0  # to look for jobs
_ANY: Final = 1 << 60  # without a limit
COUNTS: Final = 1.0  # s to wait for the counts of a queue


async def overview(visit: Visit, given: Given) -> Any:
    """The figures of the whole cluster."""
    nodes, queues = visit.cluster.nodes, visit.cluster.queues
    oldest = queues.top("oldest", 1)
    return {
        "nodes": len(nodes),
        "nodes_up": len(nodes.here()),
        "queues": len(queues),
        "queued": queues.length,
        "oldest": oldest[0].oldest if oldest else 0,
        "jobs": nodes.total("registered_jobs"),
        "clients": nodes.total("connected_clients"),
        "blocked_clients": nodes.total("blocked_clients"),
        **{f"{name}_per_second": nodes.rate(name) for name in COUNTED},
    }


async def nodes(visit: Visit, given: Given) -> Any:
    """All nodes."""
    return {"nodes": [node_fields(state) for state in visit.cluster.nodes.all()]}


async def queues(visit: Visit, given: Given) -> Any:
    """Queues, sorted."""
    found = visit.cluster.queues.find(given["search"], given["sort"], given["descending"])
    rows = found[given["offset"] : given["offset"] + given["limit"]]
    return {"total": len(found), "queues": [queue_fields(row) for row in rows]}


async def queue(visit: Visit, given: Given) -> Any:
    """One queue, with the counts that nodes have to make."""
    name = given["queue"]
    looks = visit.console.looks
    if looks.at([name], visit.now):
        here = {state.address for state in visit.cluster.nodes.here()}
        await looks.wait_reported(COUNTS if here else 0, here)
    row = visit.cluster.queues.row(name)
    if row is None:
        raise Missing("no node that answers has this queue")
    return queue_fields(row)


async def jobs(visit: Visit, given: Given) -> Any:
    """Jobs, as the nodes find them, from a cursor on."""
    words = {name: given[name] for name in ("queue", "group", "state")}
    limits = Extent(given["limit"], _ANY, SECONDS, given["body"], _ANY)
    reader = Jobs(visit.calls, visit.cluster.nodes)
    place = Place.read(given["cursor"].replace(":", "-"))
    page = await reader.page(JobFilter(**words, staged=True), place, limits)
    found = [
        job_fields(job.copy, job.address, visit.now) for job in page.jobs if job.copy is not None
    ]
    following = f"{page.next.node}:{page.next.cursor}" if page.next else None
    return {"jobs": found, "next": following, "problems": _told(page.problems)}


async def job(visit: Visit, given: Given) -> Any:
    """One job, as the node tells that knows most of it."""
    view, problems = await Jobs(visit.calls, visit.cluster.nodes).one(given["id"])
    if view is None:
        if problems and all(getattr(error, "code", "") != "BADID" for _, error in problems):
            address, error = problems[0]
            raise Problem(503, f"not all nodes answer: {address}: {error!s}")
        raise Missing("no node has this job")
    return job_fields(view.best, view.holder, visit.now)


async def workers(visit: Visit, given: Given) -> Any:
    """Workers, and the jobs that they have."""
    clients, refused = await all_clients(visit)
    reports = await all_reports(visit)
    running, unheard, old = await all_running(visit)
    problems = [*refused, *parted(unheard)[1], *((address, TOO_OLD) for address in old)]
    jobs = [(job.address, job.copy) for job in running.jobs]
    rows = merged_workers(clients, jobs, reports)
    return {"workers": [worker_fields(row) for row in rows], "problems": _told(problems)}


async def schedules(visit: Visit, given: Given) -> Any:
    """All schedules."""
    good, problems = parted(await visit.calls.every("CRON", "LIST"))
    rows = merged(good)
    return {
        "schedules": [
            {
                "name": row.schedule.name,
                "times": row.schedule.times,
                "tz": row.schedule.tz,
                "queue": row.schedule.queue,
                "options": list(row.schedule.options),
                "catchup": row.schedule.catchup,
                "paused": row.schedule.paused,
                "next": None if row.schedule.next is None else row.schedule.next / 1000,
                "user": row.schedule.user,
                "runs": [{"at": tick / 1000, "id": id} for tick, id in row.runs],
                "problems": _told(row.problems.items()),
            }
            for _, row in sorted(rows.items())
        ],
        "problems": _told(problems),
    }


async def actions(visit: Visit, given: Given) -> Any:
    """What can be done, and who may."""
    return {
        "actions": [
            {
                "name": action.name,
                "title": action.title.removesuffix("…"),
                "role": str(action.role),
                "destroys": action.danger,
            }
            for action in ACTIONS.values()
        ]
    }


def _told(problems: Iterable[tuple[str, object]]) -> list[dict[str, str]]:
    return [{"node": address, "error": str(error)} for address, error in problems]
