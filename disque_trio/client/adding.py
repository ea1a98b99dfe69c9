"""ADDJOBs that are reported to the tracer, if there is one."""

from functools import partial

from disque_trio.client import tracing
from disque_trio.client.router import Router
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError


async def add_one(router: Router, command: list[Argument], *, repeat: bool) -> Reply:
    """Run an ADDJOB and return its reply. ``repeat`` is that of ``Router.run``.

    Raises:
        DisqueError: the command failed for good.
    """
    tracer = tracing.seeing()
    if tracer is None:
        return await router.run_one("adds", command, repeat=repeat)
    run = partial(router.run, "adds", repeat=repeat)
    [reply] = await tracing.send(tracer, run, [command], router.address)
    if isinstance(reply, DisqueError):
        raise reply
    return reply


async def add_all(router: Router, commands: list[list[Argument]], *, repeat: bool) -> list[Reply]:
    """Run ADDJOBs as one pipeline and return the replies, which may include errors."""
    tracer = tracing.seeing()
    if tracer is None:
        return await router.run("adds", commands, repeat=repeat)
    run = partial(router.run, "adds", repeat=repeat)
    return await tracing.send(tracer, run, commands, router.address, batch=True)
