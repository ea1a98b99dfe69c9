"""GETJOB, which may wait for long: on a connection of its own, and safe to cancel.

The delicate moment is a cancellation while a job is on its way. The fetch then half-closes its
connection: the node sees the end, forgets the waiting client and closes, and whatever it had sent
before still arrives. A job among that is put back with ENQUEUE, since no consumer has seen it.
"""

import trio

from disque_trio.client import replies
from disque_trio.client.connection import Argument, Batch, Connection, Reply
from disque_trio.client.errors import ConnectionLost, DisqueError, LeavingError
from disque_trio.client.jobs import Job
from disque_trio.client.requests import Name, milliseconds
from disque_trio.client.router import Router
from disque_trio.client.session import Session

_CALL_OFF_SECONDS = 2.0
_WORKED_FOR_A_WHILE = 1.0


async def fetch(
    router: Router,
    queues: tuple[Name, ...],
    *,
    timeout: float | None,  # noqa: ASYNC109 - the node's
    count: int = 1,
    nohang: bool = False,
    withcounters: bool = True,
) -> tuple[Session, list[Job]]:
    """Fetch jobs, and say which node gave them. Arguments and errors as for `Client.get`.

    Between the arrival of the reply and the return there is no checkpoint.
    """
    if not queues:
        raise ValueError("at least one queue is needed")
    deadline = None if timeout is None else trio.current_time() + timeout
    retry = router.retry()
    while True:
        session = await router.session(retry)
        command: list[Argument] = ["GETJOB"]
        if nohang or timeout == 0:
            command.append("NOHANG")
        elif deadline is not None:
            command += ["TIMEOUT", milliseconds(deadline - trio.current_time())]
        command += ["COUNT", count]
        if withcounters:
            command.append("WITHCOUNTERS")
        started = trio.current_time()
        try:
            return session, replies.jobs(await _ask(router, session, [*command, "FROM", *queues]))
        except LeavingError as error:
            router.leave(session)
            failure: DisqueError = error
        except ConnectionLost as error:
            failure = error
        if trio.current_time() - started > _WORKED_FOR_A_WHILE:
            retry = router.retry()  # it had worked: this is a new trouble
        if not await retry.again():
            raise failure


async def _ask(router: Router, session: Session, command: list[Argument]) -> Reply:
    connection = await session.borrow()
    batch = connection.submit([command])
    try:
        await batch.done.wait()
    except BaseException:
        with trio.move_on_after(_CALL_OFF_SECONDS, shield=True):
            await _call_off(router, session, connection, batch)
        connection.close()
        raise
    session.give_back(connection)
    [reply] = batch.replies
    if isinstance(reply, DisqueError):
        raise reply
    return reply


async def _call_off(router: Router, session: Session, connection: Connection, batch: Batch) -> None:
    if connection.withdraw(batch):
        return
    if not batch.done.is_set():
        connection.hang_up()
        await batch.done.wait()
    try:
        jobs = replies.jobs(batch.replies[0])
        if jobs:
            command = ["ENQUEUE", *[job.id for job in jobs]]
            await router.run_one("control", command, repeat=False, home=session)
    except DisqueError:
        pass  # no reply, an error, or no way to put them back: their retry time does it
