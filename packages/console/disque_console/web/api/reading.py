"""What the API tells: the cluster, its nodes, queues, jobs, workers and schedules."""

from collections.abc import Iterable
from typing import Any, Final

import trio

from disque_console.io.calls import Answer
from disque_console.io.jobs import Jobs
from disque_console.model.actions import ACTIONS
from disque_console.model.schedules import merged
from disque_console.web.answers import parted
from disque_console.web.api.endpoint import Given, Problem
from disque_console.web.visit import Missing, Visit
from disque_trio.client import replies
from disque_trio.client.shown import ShownJob, jobs_in
from disque_trio.overview.clients import Client, read_clients
from disque_trio.overview.names import to_bytes
from disque_trio.overview.nodes import COUNTED
from disque_trio.overview.records import STAGES, job_fields, node_fields, queue_fields
from disque_trio.overview.workers import worker_fields
from disque_trio.overview.workers import workers as merged_workers
from disque_trio.resp.command import Argument
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import text

STEP: Final = 500  # jobs that a node visits for one reply
BODY: Final = 1_024  # bytes of a body in a list
SECONDS: Final = 2.0  # to look for jobs
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
    states = sorted(visit.cluster.nodes.here(), key=lambda state: state.id)
    node, _, cursor = given["cursor"].partition(":")
    found: list[dict[str, Any]] = []
    problems: list[Answer] = []
    next_page = None
    until = trio.current_time() + SECONDS
    for state in [state for state in states if state.id >= node]:
        at = cursor.encode() if state.id == node and cursor else b"0"
        count = min(STEP, given["limit"])
        while True:
            if len(found) >= given["limit"] or (found and trio.current_time() > until):
                next_page = f"{state.id}:{at.decode()}"
                break
            command = ("JSCAN", at, "COUNT", count, *_conditions(given))
            reply = await visit.calls.to(
                state.address, *command, "REPLY", "all", "CLIENT", "MAXBODY", given["body"]
            )
            if isinstance(reply, DisqueError):
                problems.append((state.address, reply))
                break
            at, page = replies.page(reply)
            found += [job_fields(job, state.address, visit.now) for job in jobs_in(page)]
            count = min(STEP, given["limit"]) if page else STEP
            if at == b"0":
                break
        if next_page is not None:
            break
    once = {job["id"]: job for job in found}  # a delayed job is on several nodes
    return {"jobs": list(once.values()), "next": next_page, "problems": _told(problems)}


def _conditions(given: Given) -> list[Argument]:
    found: list[Argument] = []
    for state in [given["state"]] if given["state"] else STAGES:
        found += ["STATE", state]
    for word in ("queue", "group"):
        if given[word]:
            found += [word.upper(), to_bytes(given[word])]
    return found


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
    clients: list[Client] = []
    good, problems = parted(await visit.calls.every("CLIENT", "LIST"))
    for address, reply in good:
        clients += read_clients(address, text(reply))
    running: list[tuple[str, ShownJob]] = []
    for state in visit.cluster.nodes.here():
        at = b"0"
        while True:
            command = ("JSCAN", at, "COUNT", STEP, "STATE", "running", "REPLY", "all", "CLIENT")
            reply = await visit.calls.to(state.address, *command, "MAXBODY", 0)
            if isinstance(reply, DisqueError):
                problems = [*problems, (state.address, str(reply))]
                break
            at, page = replies.page(reply)
            running += [(state.address, found) for found in jobs_in(page)]
            if at == b"0":
                break
    rows = merged_workers(clients, running)
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
