"""``celery inspect scheduled`` for tasks with an ``eta``, which wait in the nodes.

Celery's own command shows those that wait in the memory of the worker.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import loads, prepare_accept_content

from disque_integrations.celery import messages
from disque_integrations.elsewhere import ask_others
from disque_trio.client import Client as AsyncClient
from disque_trio.client import DisqueError, Job, replies
from disque_trio.client.shown import ShownJob, jobs_in
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.resp.command import Argument
from disque_trio.respclient.log import library_log

_log = library_log("disque.celery")

MOST: Final = 1_000
"""The most tasks that are shown."""
_STEP: Final = 500  # jobs that a node looks at before it serves others
_PATIENCE: Final = 0.5
"""Seconds to look for tasks; ``inspect`` waits one second for an answer."""
_ETA_PRIORITY: Final = 6  # that Celery's timer gives to tasks with an eta


def show_what_waits_in_nodes() -> None:
    """In a worker, have ``inspect scheduled`` show what waits in the nodes, too."""
    control = sys.modules.get("celery.worker.control")
    if control is None:
        return
    shown = control.Panel.data["scheduled"]
    if not (isinstance(shown, partial) and shown.func is scheduled):
        text = control.Panel.meta["scheduled"].help
        register = control.inspect_command(name="scheduled", alias="dump_schedule", help=text)
        register(partial(scheduled, shown))


def scheduled(
    in_worker: Callable[..., list[dict[str, Any]]], state: Any, **kwargs: Any
) -> list[dict[str, Any]]:
    """Return what Celery's own command ``in_worker`` does, and what waits in the nodes."""
    found = in_worker(state, **kwargs)
    transport = state.consumer.connection.transport
    if transport.driver_type != "disque":
        return found
    prefix = transport.options.queue_prefix
    queues = [prefix + queue.name for queue in state.consumer.task_consumer.queues]
    try:
        jobs = waiting(transport.disque, transport.cluster, queues)
    except DisqueError as error:
        _log.warning("scheduled tasks not found", error=str(error))
        return found
    accept = prepare_accept_content(state.app.conf.accept_content)
    return found + [entry for job in jobs for entry in _entry(job, accept, state.hostname)]


def waiting(client: Client, cluster: Cluster, queues: Sequence[str]) -> list[ShownJob]:
    """Return delayed jobs of these queues, the next ones first, as far as they are found in time.

    Raises:
        DisqueError: the node in use does not answer.
    """
    found: dict[str, ShownJob] = {}

    async def look(client: AsyncClient) -> None:
        with trio.move_on_after(_PATIENCE):
            await _look(client, queues, found)

    async def look_everywhere(client: AsyncClient) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, client)
            await ask_others(client, cluster, look)

    if queues:
        client.run(look_everywhere)
    return sorted(found.values(), key=_due)[:MOST]


async def _look(client: AsyncClient, queues: Sequence[str], found: dict[str, ShownJob]) -> None:
    """Look for delayed jobs on a node."""
    where: list[Argument] = [word for queue in queues for word in ("QUEUE", queue)]
    cursor: Argument = 0
    while len(found) < MOST:
        reply = await client.execute(
            "JSCAN", cursor, "COUNT", _STEP, *where, "STATE", "active", "REPLY", "all"
        )
        cursor, page = replies.page(reply)
        for job in jobs_in(page):
            if _due(job) > time.time():
                found[job.id] = job
        if cursor == b"0":
            return


def _due(job: ShownJob) -> float:
    return job.created + job.delay


def _entry(job: ShownJob, accept: Any, hostname: str) -> Iterator[dict[str, Any]]:
    """Yield what Celery shows of a task with an ``eta``; nothing for other messages."""
    try:
        message = messages.decode(Job(job.id, job.queue, job.body))
        headers, properties = message["headers"], message["properties"]
        args, kwargs, _ = loads(
            message["body"], message["content-type"], message["content-encoding"], accept
        )
    except (ContentDisallowed, DecodeError, LookupError, TypeError, ValueError):
        return
    if not headers.get("eta"):
        return
    told = properties["delivery_info"]
    yield {
        "eta": headers["eta"],
        "priority": _ETA_PRIORITY,
        "request": {
            "id": headers.get("id"),
            "name": headers.get("shadow") or headers.get("task"),
            "args": args,
            "kwargs": kwargs,
            "type": headers.get("task"),
            "hostname": hostname,
            "time_start": None,
            "acknowledged": False,
            "delivery_info": {
                "exchange": told.get("exchange"),
                "routing_key": told.get("routing_key"),
                "priority": properties.get("priority"),
                "redelivered": told.get("redelivered"),
            },
            "worker_pid": None,
        },
    }
