"""`work`: a handler for every event, several at once, until the process is told to end."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from disque_trio.bananaq.client.client import BananaClient, connect
from disque_trio.bananaq.client.events import Events, HeldEvent
from disque_trio.bananaq.client.requests import DEFAULT_PORT, HOLD, Name
from disque_trio.client.errors import DisqueError

_log = structlog.get_logger("bananaq.client")


async def work(
    queues: Name | Sequence[Name],
    group: Name,
    handler: Callable[[HeldEvent], Awaitable[object]],
    *,
    concurrency: int = 1,
    again_after: float = 1.0,
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,),
    server: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    password: str | None = None,
    hold: float = HOLD,
    retry_for: float = 30.0,
) -> None:
    """Call the handler for the events of the queues, for up to `concurrency` of them at a time.

    An event is acknowledged when the handler returns. When it raises, that is logged (structlog,
    logger `bananaq.client`) and the group gets the event again. An event is taken only when a
    handler is free for it.

    The first of the `stop_signals` ends it in peace: no new event is taken, and it returns when
    the handlers are done. A second one cancels them, and their events are given back; so does
    cancelling the call.

    Args:
        queues: a name, or several.
        again_after: seconds after which an event is given again when the handler raised.
        stop_signals: only the main thread can wait for some; none elsewhere.

    The other arguments are those of `consumer`.

    Raises:
        ConnectionLost: the server could not be reached for `retry_for` seconds.
        ReplyError: the server refused to give events.
    """
    names = (queues,) if isinstance(queues, str | bytes) else tuple(queues)
    async with connect(server, port, password=password, retry_for=retry_for) as client:
        loops = [client.events(*names, group=group, hold=hold) for _ in range(concurrency)]
        await _work(client, loops, handler, again_after, stop_signals)


async def _work(
    client: BananaClient,
    loops: Sequence[Events],
    handler: Callable[[HeldEvent], Awaitable[object]],
    again_after: float,
    stop_signals: Sequence[signal.Signals],
) -> None:
    failure: DisqueError | None = None

    async def worker(events: Events) -> None:
        nonlocal failure
        try:
            async with events:
                async for event in events:
                    try:
                        await handler(event)
                    except Exception:
                        _log.exception("event failed", id=event.id, queue=event.queue)
                        await event.give_back(again_after)
        except DisqueError as error:
            # Raised below: out of a nursery it would be a group, and `except ConnectionLost`
            # would not catch it.
            failure = failure or error
            workers.cancel_scope.cancel()

    async with trio.open_nursery() as outer:
        if stop_signals:
            await outer.start(_listen, stop_signals, loops, outer.cancel_scope)
        async with trio.open_nursery() as workers:
            for events in loops:
                workers.start_soon(worker, events)
        outer.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _listen(
    signals: Sequence[signal.Signals],
    loops: Sequence[Events],
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[None],
) -> None:
    with trio.open_signal_receiver(*signals) as received:
        task_status.started()
        stopping = False
        async for _ in received:
            if stopping:
                scope.cancel()
            stopping = True
            for events in loops:
                await events.stop()
