"""Jobs are read without their bodies, from nodes of each release."""

from collections.abc import Sequence
from typing import cast

import pytest

from disque_console.io.calls import Calls
from disque_console.io.in_hand import find_held
from disque_console.io.jobs import BODIES, LETTERS, Jobs
from disque_console.model.jobs import SHOWN
from disque_trio.overview.nodes import Nodes
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ReplyError

UNKNOWN = ReplyError("ERR", "syntax error")
RELEASES = ["ours", "before MAXBODY", "C Disque"]


def job(number: int) -> str:
    return f"D-aaaaaaaa-{number:024d}-05a1"


class Cluster:
    """Nodes of the same release, each with the same jobs, which a client has.

    Attributes:
        sent: bytes of bodies sent so far.
    """

    def __init__(self, release: str, *sizes: int) -> None:
        self.nodes = Nodes()
        for address in ("n0:1", "n1:1"):
            self.nodes.responded(address, address[1] * 40, 0.0)
        bodies = {size: b"x" * size for size in sizes}
        self.bodies = {job(number): bodies[size] for number, size in enumerate(sizes)}
        self.sent = 0
        self._known = RELEASES[::-1].index(release)  # how many of our options of SHOW

    @property
    def calls(self) -> Calls:
        return cast(Calls, self)

    async def to(self, address: str, *command: Argument) -> Reply:
        return self._reply(*command)

    async def many(self, address: str, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        return [self._reply(*command) for command in commands]

    def _reply(self, command: Argument, *words: Argument) -> Reply:
        if {"TAKEN", "CLIENT"}.intersection(words) and self._known < 1:
            return UNKNOWN
        most = 1 << 40
        if "MAXBODY" in words:
            if self._known < 2:
                return UNKNOWN
            most = int(str(words[words.index("MAXBODY") + 1]))
        if command == "JSCAN":
            return [b"0", [id.encode() for id in self.bodies]]
        if command == "QPEEK":
            ids = list(self.bodies)[: int(str(words[1]))]
            return [[b"q", id.encode(), self._body(id, most)] for id in ids]
        id = str(words[0])
        fields: list[Reply] = [b"id", id.encode(), b"queue", b"q", b"state", b"active"]
        fields += [b"nacks", 0, b"additional-deliveries", 0, b"ctime", 0, b"retry", 9]
        fields += [b"next-requeue-within", 4000, b"body", self._body(id, most)]
        if "MAXBODY" in words:
            fields += [b"body-size", len(self.bodies[id])]
        if "CLIENT" in words:
            fields += [b"client", 7]
        if {"MAXBODY", "CLIENT"} <= set(words):
            fields += [b"client-since", 2500]
        return fields

    def _body(self, id: str, most: int) -> bytes:
        body = self.bodies[id][:most]
        self.sent += len(body)
        return body


@pytest.mark.parametrize("release", RELEASES)
async def test_letters_are_read_with_their_sizes(release: str) -> None:
    cluster = Cluster(release, 3, 0, 1000)
    found, problems = await Jobs(cluster.calls, cluster.nodes).letters("q")
    assert [letter.copy.body_size for letter in found] == [3, 0, 1000] * 2
    assert problems == []
    assert (cluster.sent == 0) is (release == "ours")


@pytest.mark.parametrize("release", RELEASES)
async def test_large_letters_cost_little(release: str) -> None:
    cluster = Cluster(release, *[5 << 20] * (LETTERS + 1))
    found, _ = await Jobs(cluster.calls, cluster.nodes).letters("q")
    if release == "ours":
        assert len(found) == 2 * LETTERS
        assert cluster.sent == 0
    else:
        assert 0 < len(found) < 2 * LETTERS


@pytest.mark.parametrize("release", RELEASES)
async def test_the_page_of_a_job_reads_what_it_shows(release: str) -> None:
    cluster = Cluster(release, 10 << 20)
    jobs = Jobs(cluster.calls, cluster.nodes)
    found, problems = await jobs.one(job(0))
    assert found is not None
    assert found.best.body_size == 10 << 20
    assert (found.differing, problems) == ((), [])
    assert found.best.client == (0 if release == "C Disque" else 7)
    if release == "ours":
        assert cluster.sent == 2 * SHOWN
    assert await jobs.body(job(0)) == cluster.bodies[job(0)]


async def test_copies_of_nodes_of_different_releases_are_compared() -> None:
    found = {}
    for address, release in zip(("n0:1", "n1:1"), ("ours", "C Disque"), strict=True):
        view, _ = await Jobs((cluster := Cluster(release, SHOWN + 1)).calls, cluster.nodes).one(
            job(0)
        )
        assert view is not None
        found[address] = view.copies[address]
    assert type(view)(found, view.ids).differing == ()


@pytest.mark.parametrize("release", RELEASES)
async def test_jobs_in_hand_are_read_without_bodies_where_that_is_possible(release: str) -> None:
    cluster = Cluster(release, *[1 << 20] * 60)
    hands = await find_held(cluster.calls, cluster.nodes, "q", 9.0)
    assert (hands.count, hands.whole, hands.problems) == (60, True, [])
    if release == "ours":
        assert (len(hands.held), cluster.sent) == (50, 0)
    else:
        assert cluster.sent <= 2 * (BODIES + (10 << 20))
    assert {held.taker for held in hands.held} == ({0} if release == "C Disque" else {7})
    assert {held.since for held in hands.held} == ({2.5} if release == "ours" else {None})
