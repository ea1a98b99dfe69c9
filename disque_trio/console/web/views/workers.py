"""Workers, and what is in their hands."""

from typing import Final

from disque_trio.client.replies import page
from disque_trio.console.io.calls import Answer
from disque_trio.console.model.names import to_bytes
from disque_trio.console.model.paging import page_of
from disque_trio.console.model.workers import Held, read_held, workers
from disque_trio.console.web.answers import parted
from disque_trio.console.web.views.clients import all_clients
from disque_trio.console.web.visit import Shown, Visit
from disque_trio.respclient.errors import DisqueError

SCAN: Final = 1_500  # jobs that a node looks at in a step
STEPS: Final = 10  # steps on each node
MOST: Final = 200  # jobs of the queue that are counted
SHOWN: Final = 50
SLICE: Final = 10  # jobs that a node shows at once
BYTES: Final = 4 << 20  # of bodies, which come with what is wanted
BUSIEST: Final = 12  # queues
TOTALS: Final = ("blocked_clients", "consuming_clients", "jobs_pushed_in_hand")


class _Looked:
    """What was found of a queue: jobs in hand; how many there are; problems; whether all jobs were
    looked at."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.count = 0
        self.problems: list[tuple[str, str]] = []
        self.whole = True


async def view(visit: Visit) -> Shown:
    """Clients that work, and the jobs of a queue that somebody has."""
    clients, problems = await all_clients(visit)
    wanted = visit.query("search").strip()
    queue = visit.query("queue")
    looked = _Looked()
    if queue:
        looked = await visit.recently(("held", queue), lambda: _look(visit, queue))
        problems = problems + [entry for entry in looked.problems if entry not in problems]
    busiest = [row.name for row in visit.cluster.queues.top("delivered", BUSIEST)]
    return Shown(
        {
            "paging": page_of(workers(clients, wanted), visit.number("page", 1, least=1)),
            "problems": problems,
            "search": wanted,
            "queue": queue,
            "held": looked.held,
            "held_count": looked.count,
            "whole": looked.whole,
            "busiest": busiest,
            "totals": {name: visit.cluster.nodes.total(name) for name in TOTALS},
        }
    )


async def _look(visit: Visit, queue: str) -> _Looked:
    """Look for the active jobs of a queue."""
    looked = _Looked()
    failed: list[Answer] = []
    ids: dict[str, list[bytes]] = {}
    for state in visit.cluster.nodes.here():
        mine = ids[state.address] = []
        cursor = b"0"
        for _ in range(STEPS):
            reply = await visit.calls.to(
                *(state.address, "JSCAN", cursor, "COUNT", SCAN),
                *("QUEUE", to_bytes(queue), "STATE", "active"),
            )
            if isinstance(reply, DisqueError):
                failed.append((state.address, reply))
                break
            cursor, found = page(reply)
            mine += [id for id in found if isinstance(id, bytes)]
            if cursor == b"0" or len(mine) >= MOST:
                break
        looked.whole = looked.whole and cursor == b"0"
    looked.count = len({id for mine in ids.values() for id in mine})
    looked.held = read_held(await _show(visit, ids), visit.now)
    looked.problems = parted(failed)[1]
    return looked


async def _show(visit: Visit, ids: dict[str, list[bytes]]) -> list[Answer]:
    """SHOW of the same few jobs on each node that has them."""
    few = set(sorted({id for mine in ids.values() for id in mine})[:SHOWN])
    shown: list[Answer] = []
    size = 0
    for address, mine in ids.items():
        wanted = [id for id in mine if id in few]
        for begin in range(0, len(wanted), SLICE):
            if size > BYTES:
                break
            commands = [("SHOW", id) for id in wanted[begin : begin + SLICE]]
            answers = await visit.calls.many(address, commands)
            jobs = [answer for answer in answers if isinstance(answer, list)]
            size += sum(len(value) for job in jobs for value in job if isinstance(value, bytes))
            shown.append((address, list(jobs)))
    return shown
