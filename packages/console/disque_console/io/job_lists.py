"""Asks all nodes for the first jobs of a list, with one request to each."""

import trio

from disque_console.io.calls import Answer, Calls
from disque_console.io.jobs import is_unknown
from disque_console.model.job_lists import FirstJobs, ListedJobs, merge_first, read_first
from disque_console.model.job_rows import READ
from disque_console.model.job_scans import JobFilter
from disque_trio.overview.nodes import Nodes
from disque_trio.respclient.errors import DisqueError


async def find_first(
    calls: Calls, nodes: Nodes, wanted: JobFilter, stage: str, count: int, now: float
) -> tuple[ListedJobs, list[Answer], list[str]]:
    """Look for the first ``count`` jobs that are ``wanted`` and in ``stage``, on the reachable
    nodes, at ``now`` (s since the epoch). Return them, the errors of nodes that did not answer, and
    the addresses of nodes of older releases, which have no lists."""
    told: list[tuple[str, FirstJobs]] = []
    problems: list[Answer] = []
    old: list[str] = []

    async def ask(address: str) -> None:
        words = ("FIRST", count, "STATE", stage, "REPLY", "all", "CLIENT", "MAXBODY", READ)
        reply = await calls.to(address, "JSCAN", *words, *wanted.conditions)
        try:
            told.append((address, read_first(reply)))
        except DisqueError as error:
            if is_unknown(error):
                old.append(address)
            else:
                problems.append((address, error))

    async with trio.open_nursery() as nursery:
        for state in nodes.here():
            nursery.start_soon(ask, state.address)
    return (
        merge_first(sorted(told, key=lambda one: one[0]), stage, now),
        sorted(problems, key=lambda one: one[0]),
        sorted(old),
    )
