"""ADDJOBs that are reported to the tracer, if there is one."""

from functools import partial

from disque_trio.client import tracing
from disque_trio.client.router import Router
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import Name


async def add_one(router: Router, command: list[Argument], *, repeat: bool) -> Reply:
    """Run an ADDJOB and return its reply. ``repeat`` is that of ``Router.run``.

    Raises:
        DisqueError: the command failed for good.
    """
    queues = _queues(command)
    tracer = tracing.seeing()
    if tracer is None:
        return await router.run_one("adds", command, repeat=repeat, queues=queues)
    run = partial(router.run, "adds", repeat=repeat, queues=queues)
    [reply] = await tracing.send(tracer, run, [command], router.address_for(queues))
    if isinstance(reply, DisqueError):
        raise reply
    return reply


async def add_all(router: Router, commands: list[list[Argument]], *, repeat: bool) -> list[Reply]:
    """Run ADDJOBs as one pipeline, or one for each node that is best for their queues, and return
    the replies, which may include errors."""
    tracer = tracing.seeing()
    if tracer is None:
        return await _run(router, commands, repeat)
    run = partial(_run, router, repeat=repeat)
    return await tracing.send(tracer, run, commands, router.address_for(_all(commands)), batch=True)


async def _run(router: Router, commands: list[list[Argument]], repeat: bool) -> list[Reply]:
    parts: dict[str | None, list[int]] = {}
    for index, command in enumerate(commands):
        node = None
        if router.hints is not None:
            node = router.hints.node_for(_queues(command))
        parts.setdefault(node, []).append(index)
    if len(parts) <= 1:
        return await router.run("adds", commands, repeat=repeat, queues=_all(commands))
    replies: list[Reply] = [None] * len(commands)
    failures: list[Exception] = []

    async def add(part: list[int]) -> None:
        some = [commands[index] for index in part]
        try:
            answers = await router.run("adds", some, repeat=repeat, queues=_all(some))
        except Exception as error:
            failures.append(error)  # as it is, not in a group
        else:
            for index, reply in zip(part, answers, strict=True):
                replies[index] = reply

    async with library().open_nursery() as nursery:
        for part in parts.values():
            nursery.start_soon(add, part)
    for failure in failures:
        raise failure
    return replies


def _all(commands: list[list[Argument]]) -> list[Name]:
    """The queues of ADDJOBs."""
    return list(dict.fromkeys([queue for command in commands for queue in _queues(command)]))


def _queues(command: list[Argument]) -> tuple[Name, ...]:
    """The queue of an ADDJOB; none if it is for a topic, which concerns many."""
    queue = command[1]
    if not isinstance(queue, str | bytes) or queue[:1] in ("@", b"@"):
        return ()
    return (queue,)
