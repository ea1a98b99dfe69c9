"""``work``: calls a handler for every event, several at once, until the process is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Unpack

from disque_bananaq.client.client import ConnectOptions, connect
from disque_bananaq.client.events import Events, HeldEvent, log
from disque_bananaq.client.requests import HOLD
from disque_trio.respclient.concurrency import CancelScope, TaskStatus, library
from disque_trio.respclient.consumer import run_handlers
from disque_trio.respclient.values import Name


async def work(
    queues: Name | Sequence[Name],
    group: Name,
    handler: Callable[[HeldEvent], Awaitable[object]],
    *,
    concurrency: int = 1,
    again_after: float = 1.0,
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,),
    hold: float = HOLD,
    **connection: Unpack[ConnectOptions],
) -> None:
    """Call the handler for each event of the queues, up to ``concurrency`` at a time.

    An event is acknowledged when its handler returns. If the handler raises an exception, the
    exception is logged (structlog, logger ``bananaq.client``) and the group gets the event again.
    An event is taken only when a handler is free for it.

    After the first of the ``stop_signals``, no new events are taken, and the call returns when the
    handlers have finished. A second signal cancels the handlers and gives their events back.
    Cancelling the call does the same.

    Args:
        queues: the name of a queue, or several names.
        again_after: seconds after which an event is delivered again if its handler raised.
        stop_signals: must be empty outside of the main thread, since only that receives signals.

    ``hold`` is that of ``consumer``; ``ConnectOptions`` describes the other arguments.

    Raises:
        ConnectionLost: the server could not be reached for ``retry_for`` seconds.
        ReplyError: the server refused to deliver events.
    """
    names = (queues,) if isinstance(queues, str | bytes) else tuple(queues)

    async def failed(event: HeldEvent) -> None:
        log.exception("event failed", id=event.id, queue=event.queue)
        await event.give_back(again_after)

    async with connect(**connection) as client:
        loops = [client.events(*names, group=group, hold=hold) for _ in range(concurrency)]
        failure = None  # stays so if the second signal cancels
        async with library().open_nursery() as nursery:
            if stop_signals:
                await nursery.start(_listen, stop_signals, loops, nursery.cancel_scope)
            failure = await run_handlers(loops, handler, failed)
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def _listen(
    signals: Sequence[signal.Signals],
    loops: Sequence[Events],
    scope: CancelScope,
    task_status: TaskStatus,
) -> None:
    with library().open_signal_receiver(*signals) as received:
        task_status.started()
        stopping = False
        async for _ in received:
            if stopping:
                scope.cancel()
            stopping = True
            for events in loops:
                await events.stop()
