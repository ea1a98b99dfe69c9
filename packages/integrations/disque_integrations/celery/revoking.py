"""Cancels the jobs of tasks that are revoked.

Celery tells its workers which tasks are revoked, and they keep that in mind. Workers that start
later do not know. So whoever revokes a task for all workers cancels its job, too: it is found by
the header with the task's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from celery._state import _get_active_apps
from celery.app.task import Context
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import loads, prepare_accept_content

from disque_integrations.celery import messages
from disque_integrations.celery.messages import TASK_ID, Message
from disque_integrations.celery.options import TransportOptions
from disque_integrations.elsewhere import ask_others
from disque_trio.client import Client as AsyncClient
from disque_trio.client import DisqueError, Job, replies
from disque_trio.client.shown import ShownJob
from disque_trio.client.sync import Client
from disque_trio.client.urls import Cluster
from disque_trio.respclient.log import library_log

_log = library_log("disque.celery")

PIDBOX: Final = ".pidbox"
"""The end of the names of exchanges by which workers are told what to do."""
_UNFINISHED: Final = ("wait-repl", "active", "queued")
_FEW: Final = 8
"""The most tasks of which each is looked for on its own: a scan for one gets no other jobs."""
_STEP: Final = 1_500  # jobs that a node looks at before it serves others
_PATIENCE: Final = 10.0
"""Seconds that other nodes have to find the jobs."""


class Told(Protocol):
    """The connection by which workers are told.

    Attributes:
        client: kombu's connection.
        disque: the client.
        cluster: the nodes.
    """

    client: Any

    @property
    def disque(self) -> Client: ...
    @property
    def cluster(self) -> Cluster: ...


@dataclass(slots=True)
class _Task:
    """The job of a task.

    Attributes:
        id: of the job.
        body: of the job.
        held: whether a worker has it, as far as nodes that have been asked know.
    """

    id: str
    body: bytes
    held: bool = field(default=False)


def revoked(exchange: str, message: Message) -> list[str]:
    """Return the ids of the tasks that a message to workers revokes for all of them."""
    if not exchange.endswith(PIDBOX):
        return []
    try:
        # This program has made the message.
        said = loads(
            message["body"], message["content-type"], message["content-encoding"], force=True
        )
    except DecodeError:
        return []
    if not isinstance(said, Mapping) or said.get("method") != "revoke":
        return []
    if said.get("destination") or said.get("pattern"):
        return []  # others may run it
    ids = (said.get("arguments") or {}).get("task_id") or []
    return [ids] if isinstance(ids, str) else [id for id in ids if isinstance(id, str)]


def cancel(connection: Told, exchange: str, ids: Sequence[str]) -> None:
    """Cancel the jobs of tasks, and note that those that no worker has are revoked.

    Workers know already. So errors are only logged.
    """
    try:
        found = connection.disque.run(lambda client: _cancel(client, connection.cluster, ids))
    except DisqueError as error:
        _log.warning("jobs of revoked tasks not cancelled", tasks=ids, error=str(error))
        return
    waiting = [task for task in found if not task.held]
    app = _app(connection.client, exchange.removesuffix(PIDBOX)) if waiting else None
    if app is not None:
        for task in waiting:
            _note(app, task)


async def _cancel(client: AsyncClient, cluster: Cluster, ids: Sequence[str]) -> list[_Task]:
    """Cancel the jobs; return those of tasks that had not ended."""
    looked = [
        await _find(client, ids),
        *await ask_others(client, cluster, lambda node: _find(node, ids), _PATIENCE),
    ]
    tasks: dict[str, _Task] = {}
    for one in looked:
        for task in one:
            known = tasks.setdefault(task.id, task)
            known.held |= task.held
    jobs = list(tasks)
    for start in range(0, len(jobs), 100):
        await client.cancel(*jobs[start : start + 100])
    return list(tasks.values())


async def _find(client: AsyncClient, ids: Sequence[str]) -> list[_Task]:
    """Find the jobs of tasks on a node."""
    found: list[_Task] = []
    wanted = frozenset(ids)
    each = [{TASK_ID: id} for id in wanted] if len(wanted) <= _FEW else [None]
    for headers in each:
        scan = client.jscan_full(headers=headers, states=_UNFINISHED, count=_STEP)
        async for record in scan:
            job = ShownJob.of(record)
            if dict(job.header_pairs).get(TASK_ID) in wanted:
                found.append(_Task(job.id, job.body))
    for task in found:
        shown = replies.record(await client.execute("SHOW", task.id, "CLIENT", "MAXBODY", 0))
        task.held = shown is not None and "client" in shown
    return found


def _app(connection: Any, namespace: str) -> Any:
    """Return the Celery app that has this connection; None: it is kombu's alone."""
    for app in list(_get_active_apps()):
        if app.conf.control_exchange == namespace:
            other = app.connection_for_write()
            if _place(other) == _place(connection):
                return app
    return None


def _place(connection: Any) -> tuple[list[str], str]:
    """Where a connection leads: the URLs of the nodes, and the prefix of queues there."""
    urls = connection.alt or [connection.as_uri(include_password=True)]
    return list(urls), TransportOptions.of(connection.transport_options).queue_prefix


def _note(app: Any, task: _Task) -> None:
    """Store that a task was revoked, as a worker does that drops it."""
    try:
        message = messages.decode(Job(task.id, "", task.body))
    except ValueError:
        return
    headers = message["headers"]
    try:
        accept = prepare_accept_content(app.conf.accept_content)
        payload = loads(
            message["body"], message["content-type"], message["content-encoding"], accept
        )
        request = Context({**headers, **(payload[2] or {})})
    except (ContentDisallowed, DecodeError, LookupError, TypeError):
        request = None  # it may be part of a chord, which then waits for it
    try:
        app.backend.mark_as_revoked(
            headers["id"], "revoked", request, store_result=not headers.get("ignore_result")
        )
    except Exception as error:  # any backend's
        _log.warning("state of a revoked task not stored", task=headers["id"], error=str(error))
