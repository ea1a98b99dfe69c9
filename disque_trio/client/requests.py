"""Encodes Python values as command arguments: options and times."""

import math
from collections.abc import Sequence

from disque_trio.resp.command import Argument
from disque_trio.respclient.values import Name


def milliseconds(seconds: float) -> int:
    """A time limit for the wire, where 0 means for ever: at least 1."""
    return max(1, math.ceil(seconds * 1000))


def options(**values: int | None) -> list[Argument]:
    """The options that are given, each with its value."""
    return [part for name, value in values.items() if value is not None for part in (name, value)]


def addjob(
    queue: Name,
    body: Name,
    timeout: float | None,
    replicate: int | None,
    delay: int | None,
    retry: int | None,
    ttl: int | None,
    maxlen: int | None,
    async_: bool,
) -> list[Argument]:
    """The arguments of ADDJOB; see ``Client.add``."""
    if timeout is not None and timeout <= 0:
        raise ValueError("the timeout must be positive; None waits for ever")
    command: list[Argument] = ["ADDJOB", queue, body]
    command.append(0 if timeout is None else milliseconds(timeout))
    command += options(REPLICATE=replicate, DELAY=delay, RETRY=retry, TTL=ttl, MAXLEN=maxlen)
    if async_:
        command.append("ASYNC")
    return command


def jscan(count: int | None, queue: Name | None, states: Sequence[str]) -> list[Argument]:
    """The options of JSCAN; see ``Client.jscan``."""
    command = options(COUNT=count)
    if queue is not None:
        command += ["QUEUE", queue]
    for state in states:
        command += ["STATE", state]
    return command
