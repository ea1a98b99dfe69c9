"""Workers, and the jobs that they have."""

from collections import Counter
from functools import partial
from typing import Final

from disque_console.io.in_hand import JobsInHand, find_held
from disque_console.model.paging import page_of
from disque_console.model.workers import workers
from disque_console.web.answers import parted
from disque_console.web.views.clients import all_clients, named
from disque_console.web.visit import Shown, Visit

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
    by_id = await named(visit, [(job.taken_on, job.taker) for job in looked.held], clients)
    hands = Counter((job.taken_on, job.taker) for job in looked.held if job.taker)
    busiest = [row.name for row in visit.cluster.queues.top("delivered", BUSIEST)]
    return Shown(
        {
            "paging": page_of(workers(clients, wanted), visit.number("page", 1, least=1)),
            "problems": problems,
            "search": wanted,
            "queue": queue,
            "held": [(job, job.holder(by_id)) for job in looked.held],
            "hands": hands,
            "held_count": looked.count,
            "whole": looked.whole,
            "busiest": busiest,
            "totals": {name: visit.cluster.nodes.total(name) for name in TOTALS},
        }
    )


async def _look(visit: Visit, queue: str) -> JobsInHand:
    return await find_held(visit.calls, visit.cluster.nodes, queue, visit.now)
