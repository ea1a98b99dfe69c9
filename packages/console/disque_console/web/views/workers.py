"""Workers, and the jobs that they have."""

from contextlib import suppress
from functools import partial
from typing import Final

from disque_console.io.calls import Answer
from disque_console.io.in_hand import JobsInHand, find_held
from disque_console.io.job_lists import find_first
from disque_console.model.job_lists import MOST, ListedJobs
from disque_console.model.job_rows import JobRow, row_of
from disque_console.model.job_scans import JobFilter
from disque_console.model.paging import page_of
from disque_console.model.workers import find
from disque_console.web.answers import parted
from disque_console.web.views.clients import all_clients, named
from disque_console.web.visit import Shown, Visit
from disque_trio.client.shown import ShownJob
from disque_trio.overview.workers import ProcessReport, read_reports, workers
from disque_trio.respclient.errors import DisqueError

RUNNING_KEPT: Final = 8.0  # s: nodes look at all their jobs for it
BUSIEST: Final = 12  # queues
TOTALS: Final = ("blocked_clients", "consuming_clients", "jobs_pushed_in_hand")


async def view(visit: Visit) -> Shown:
    """The workers, and the jobs in hand of a queue."""
    clients, problems = await all_clients(visit)
    wanted = visit.query("search").strip()
    queue = visit.query("queue")
    looked = JobsInHand()
    if queue:
        looked = await visit.recently(("held", queue), partial(_look, visit, queue))
        found = parted(looked.problems)[1]
        problems = problems + [entry for entry in found if entry not in problems]
    running, unheard, old = await all_running(visit)
    reports = await all_reports(visit)
    problems = problems + [entry for entry in parted(unheard)[1] if entry not in problems]
    taken = [(job.address, job.copy) for job in running.jobs]
    processes = find(workers(clients, taken, reports), wanted)
    by_id = await named(visit, [(job.taken_on, job.taker) for job in looked.held], clients)
    busiest = [row.name for row in visit.cluster.queues.top("delivered", BUSIEST)]
    return Shown(
        {
            "paging": page_of(processes, visit.number("page", 1, least=1)),
            "running": running.counts["running"],
            "told": len(running.jobs),
            "old": old,
            "row_of": partial(_row, visit),
            "problems": problems,
            "search": wanted,
            "queue": queue,
            "held": [(job, job.holder(by_id)) for job in looked.held],
            "held_count": looked.count,
            "whole": looked.whole,
            "busiest": busiest,
            "slots": sum(report.slots for report in reports),
            "totals": {name: visit.cluster.nodes.total(name) for name in TOTALS},
        }
    )


async def all_reports(visit: Visit) -> list[ProcessReport]:
    """What worker processes say of themselves, on nodes that know it and may tell the visitor."""
    found: list[ProcessReport] = []
    for address, reply in await visit.every("WORKER", "LIST"):
        with suppress(DisqueError):
            if not isinstance(reply, DisqueError):
                found += read_reports(address, reply)
    return found


async def all_running(visit: Visit) -> tuple[ListedJobs, list[Answer], list[str]]:
    """The jobs that run (see ``find_first``), a few seconds old at most."""
    return await visit.recently("running", partial(_running, visit), RUNNING_KEPT)


async def _running(visit: Visit) -> tuple[ListedJobs, list[Answer], list[str]]:
    """The jobs that run, those that have been running longest first."""
    calls, nodes = visit.calls, visit.cluster.nodes
    return await find_first(calls, nodes, JobFilter(), "running", MOST, visit.now)


def _row(visit: Visit, job: ShownJob) -> JobRow:
    return row_of(job, visit.cluster.policies.of(job.queue))


async def _look(visit: Visit, queue: str) -> JobsInHand:
    return await find_held(visit.calls, visit.cluster.nodes, queue, visit.now)
