"""ADDJOBs that are reported to the tracer, if there is one."""

from functools import partial

from disque_trio.client import tracing
from disque_trio.client.router import Router
from disque_trio.resp.command import Argument
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
    """Run ADDJOBs as one pipeline and return the replies, which may include errors."""
    queues = list(dict.fromkeys([queue for command in commands for queue in _queues(command)]))
    tracer = tracing.seeing()
    if tracer is None:
        return await router.run("adds", commands, repeat=repeat, queues=queues)
    run = partial(router.run, "adds", repeat=repeat, queues=queues)
    return await tracing.send(tracer, run, commands, router.address_for(queues), batch=True)


def _queues(command: list[Argument]) -> tuple[Name, ...]:
    """The queue of an ADDJOB; none if it is for a topic, which concerns many."""
    queue = command[1]
    if not isinstance(queue, str | bytes) or queue[:1] in ("@", b"@"):
        return ()
    return (queue,)
