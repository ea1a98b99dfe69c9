"""Workers, and the jobs that they have."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from disque_trio.client.replies import page
from disque_trio.console.io.calls import Answer
from disque_trio.console.model.clients import Client, read_clients
from disque_trio.console.model.paging import page_of
from disque_trio.console.model.workers import Held, read_held, workers
from disque_trio.console.web.answers import parted
from disque_trio.console.web.views.clients import all_clients
from disque_trio.console.web.visit import Shown, Visit
from disque_trio.overview.names import to_bytes
from disque_trio.respclient.errors import DisqueError, ReplyError

SCAN: Final = 1_500  # jobs that a node scans in one step
STEPS: Final = 10  # steps on each node
MOST: Final = 200  # jobs of the queue to count
SHOWN: Final = 50
SLICE: Final = 10  # jobs per SHOW command
BYTES: Final = 4 << 20  # of bodies, which SHOW always sends
BUSIEST: Final = 12  # queues
TOTALS: Final = ("blocked_clients", "consuming_clients", "jobs_pushed_in_hand")


class _Looked:
    """The jobs in hand of a queue: the jobs, how many there are, problems, and whether all jobs
    were scanned."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.count = 0
        self.problems: list[tuple[str, str]] = []
        self.whole = True


async def view(visit: Visit) -> Shown:
    """The workers, and the jobs in hand of a queue."""
    clients, problems = await all_clients(visit)
    wanted = visit.query("search").strip()
    queue = visit.query("queue")
    looked = _Looked()
    if queue:
        looked = await visit.recently(("held", queue), lambda: _look(visit, queue))
        problems = problems + [entry for entry in looked.problems if entry not in problems]
    by_id = await _takers(visit, looked.held, clients)
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


async def _takers(
    visit: Visit, held: Iterable[Held], clients: Iterable[Client]
) -> dict[tuple[str, int], Client]:
    """Clients by node and id: the known ones, and newer ones that have jobs."""
    found = {(client.node, client.id): client for client in clients}
    missing: dict[str, set[int]] = {}
    for job in held:
        if job.taker and (job.taken_on, job.taker) not in found:
            missing.setdefault(job.taken_on, set()).add(job.taker)
    for address, ids in missing.items():
        reply = await visit.calls.to(address, "CLIENT", "LIST", "ID", *sorted(ids))
        if isinstance(reply, bytes):
            for client in read_clients(address, reply.decode("utf-8", "replace")):
                found[address, client.id] = client
    return found


async def _look(visit: Visit, queue: str) -> _Looked:
    """Find the jobs in hand of a queue."""
    looked = _Looked()
    failed: list[Answer] = []
    ids: dict[str, list[bytes]] = {}
    for state in visit.cluster.nodes.here():
        mine = ids[state.address] = []
        cursor = b"0"
        which: tuple[str, ...] = ("TAKEN",)
        for _ in range(STEPS):
            scan = ("JSCAN", cursor, "COUNT", SCAN, "QUEUE", to_bytes(queue))
            reply = await visit.calls.to(state.address, *scan, *which)
            if isinstance(reply, ReplyError) and reply.code == "ERR" and which == ("TAKEN",):
                # A node of an older release, or C Disque: it also lists copies.
                which = ("STATE", "active")
                reply = await visit.calls.to(state.address, *scan, *which)
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
    """SHOW a few jobs on each node that has them."""
    few = set(sorted({id for mine in ids.values() for id in mine})[:SHOWN])
    shown: list[Answer] = []
    size = 0
    for address, mine in ids.items():
        wanted = [id for id in mine if id in few]
        for begin in range(0, len(wanted), SLICE):
            if size > BYTES:
                break
            few_of_them = wanted[begin : begin + SLICE]
            answers = await visit.calls.many(
                address, [("SHOW", id, "CLIENT") for id in few_of_them]
            )
            if any(isinstance(answer, ReplyError) for answer in answers):
                # A node of an older release, or C Disque: it does not know who has a job.
                answers = await visit.calls.many(address, [("SHOW", id) for id in few_of_them])
            jobs = [answer for answer in answers if isinstance(answer, list)]
            size += sum(len(value) for job in jobs for value in job if isinstance(value, bytes))
            shown.append((address, list(jobs)))
    return shown
