"""The page of a queue, of nodes of this release and of earlier ones."""

from typing import Any

import pytest

from disque_console.io.calls import Answer
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import reply_error
from packages.console.tests.support.console import Answer as Page
from packages.console.tests.support.console_app import World, world

NEW, OLD = "10.0.0.1:7711", "10.0.0.2:7711"


def stat(jobs: int, new: bool, **more: Any) -> dict[bytes, Any]:
    """QSTAT FULL of a node that was told of ``jobs`` and gave them out."""
    fields: dict[str, Any] = {"len": 3, "jobs-in": 2 * jobs, "jobs-out": 2 * jobs}
    fields |= {"jobs-acked": jobs, "jobs-delayed": 4, "jobs-in-hand": 0, "jobs-dead": 5}
    if new:
        fields |= {"jobs-added": jobs, "jobs-delivered": jobs, "jobs-imported": jobs // 2}
        fields |= {"wait-total": [0, 0, jobs], "wait-recent": [0, 0, jobs]}
        fields |= {"processing-total": [], "processing-recent": []}
    return {name.encode(): value for name, value in (fields | more).items()}


async def page(here: World, path: str) -> str:
    """What a page says to an operator."""
    reply = await here.ask("GET", path, cookie=here.session("operator"))
    assert reply.status == 200
    return Page(reply.status, None, reply.body, 0.0).says  # type: ignore[arg-type]


def told(here: World, new: bool, node: str = NEW) -> None:
    """A node tells of a queue twice, ten seconds apart."""
    for ago, jobs in ((10.0, 100), (0.0, 200)):
        moment = here.clock.now - ago
        here.console.cluster.queues.take(node, "q", stat(jobs, new), moment)


async def test_what_clients_did_is_told_apart_from_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        told(here, new=True)
        says = await page(here, "/queue?name=q")
        assert "Added 10 per second" in says
        assert "Delivered 10 per second" in says
        assert "Moved 5.0 per second, between nodes" in says
        assert "Delayed 4 jobs" in says
        assert "Dead letters 5 jobs" in says
        assert "earlier release" not in says


async def test_nodes_of_earlier_releases_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        told(here, new=True)
        told(here, new=False, node=OLD)
        says = await page(here, "/queue?name=q")
        assert f"{OLD} , of an earlier release, does not tell" in says
        assert f"{NEW} , of" not in says
        assert "some counted twice" in says


async def test_how_long_jobs_take_is_told_for_the_last_minutes_and_the_chosen_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        told(here, new=True)
        says = await page(here, "/queue?name=q&range=8h")
        # 200 in the last minutes; the console was told of 100 of them. All took 2 to 4 ms.
        assert "Waiting of the last 5 to 10 minutes 3 ms 4 ms 4 ms" in says
        assert "Waiting of the last 8 hours: 100 jobs 3 ms 4 ms 4 ms" in says
        assert "Processing of the last 8 hours: 0 jobs" in says


def top(*rows: tuple[str, int, int], unread: int = 0) -> Reply:
    """A reply to QTOP: names, with how many jobs they added and have queued."""
    listed: Reply = [[name.encode(), added, queued, 0, 0] for name, added, queued in rows]
    return [b"by", b"user", b"rows", listed, b"others", [0, -1, 0, 0, 0], b"unread", unread]


async def asked(
    monkeypatch: pytest.MonkeyPatch, path: str, *answers: Answer
) -> tuple[str, list[tuple[object, ...]]]:
    """What the page says if nodes answer so, and the commands they got."""
    sent: list[tuple[object, ...]] = []

    async def every(*command: object, but: str = "") -> list[Answer]:
        sent.append(command)
        return list(answers)

    async with world(monkeypatch) as here:
        told(here, new=True)
        monkeypatch.setattr(here.calls, "every", every)
        says = await page(here, path)
        await page(here, path)  # it is not asked again
        return says, sent


async def test_whose_jobs_they_are_is_asked_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    says, sent = await asked(monkeypatch, "/queue?name=q", (NEW, top(("ann", 1, 1))))
    assert sent == []
    assert "ann" not in says
    assert "only if you ask" in says


async def test_whose_jobs_they_are_is_told_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = (NEW, top(("ann", 900, 6), ("", 0, 1))), (OLD, top(("ann", 0, 3), unread=7))
    says, sent = await asked(monkeypatch, "/queue?name=q&by=user", *answers)
    assert sent == [("QTOP", b"q", "BY", "user", "COUNT", 1_000)]
    assert "ann 90 % 9 9 0 0 100 % 900" in says
    assert "unknown: added through another node, or before a restart 10 % 1 1 0 0 0 % 0" in says
    assert "7 jobs on disk were not looked at" in says


async def test_nodes_that_cannot_tell_whose_jobs_they_are_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = reply_error("ERR unknown command 'QTOP'")
    refused = reply_error("NOPERM this user has no permissions to run the 'qtop' command")
    answers = (NEW, top(("a", 1, 1))), (OLD, unknown), ("10.0.0.3:7711", refused)
    says, _ = await asked(monkeypatch, "/queue?name=q&by=client", *answers)
    assert f"{OLD} , of an earlier release, does not tell." in says
    assert "10.0.0.3:7711 : NOPERM this user" in says
    assert "a 100 %" in says


async def test_a_word_that_there_is_not_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    says, sent = await asked(monkeypatch, "/queue?name=q&by=shoe-size")
    assert sent == []
    assert "only if you ask" in says


async def test_that_there_is_no_room_for_charts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        histories = here.console.history.histories
        told(here, new=True)
        assert "has room for the charts" not in await page(here, "/queue?name=q")
        number = 0
        while not histories.full:
            number += 1
            histories.note(f"q{number}", here.clock.now, {}, {"length": 1}, None)
        here.console.cluster.queues.take(NEW, "late", stat(100, True), here.clock.now)
        says = await page(here, "/queue?name=late")
        assert f"has room for the charts of {number + 2:,} queues" in says
        assert "Nothing is known yet of this time." in says
        here.clock.now += 2.0
        here.console.cluster.queues.take(NEW, "late", stat(110, True), here.clock.now)
        assert "knows the last 2 s of it" in await page(here, "/queue?name=late")


async def test_charts_of_a_queue_that_is_gone_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        told(here, new=True)
        here.console.cluster.queues.gone(NEW, "q")
        says = await page(here, "/queue?name=q")
        assert "No responding node knows this queue" in says
        assert "ago: added 10, delivered 10, acked 10 jobs/s" in says
        assert "Jobs per second" not in await page(here, "/queue?name=other")
