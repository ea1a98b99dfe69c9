"""What the processes of a server do one after the other."""

from typing import Any, cast

import trio

from disque_trio.node.sibling_table import APPLY, DUMP, RESTART
from disque_trio.node.together import Together
from disque_trio.respserver.client import Client


class Others:
    """The other processes: what each answers, and what happened, in order."""

    def __init__(self, answers: dict[int, str | None], lost: int = -1) -> None:
        self.answers = answers
        self.lost = lost
        self.story: list[tuple[str, int]] = []
        self.spawned: list[Any] = []

    def others(self) -> list[int]:
        return list(self.answers)

    def spawn(self, *task: Any) -> None:
        self.spawned.append(task)

    async def ask(self, number: int, what: bytes) -> str | None:
        self.story.append((what.decode(), number))
        return self.answers[number]

    async def comes_back(self, number: int) -> bool:
        self.story.append(("back", number))
        return number != self.lost


class EngineDouble:
    """Hands out replies."""

    halted = False

    def __init__(self) -> None:
        self.node = self
        self.answered: list[Any] = []

    def after_node(self) -> None:
        pass


async def outcome(others: Others, begin: str, problem: str | None = None) -> bytes | None:
    """The reply to whoever asked; ``problem``: why this process cannot do it."""
    engine = EngineDouble()

    def own(what: str) -> Any:
        def do() -> str | None:
            others.story.append((what, 0))
            return problem if what in ("check", "dump") else None

        return do

    together = Together(
        cast(Any, others),
        cast(Any, engine),
        *(own(what) for what in ("restart", "check", "dump", "shutdown")),
    )
    client = Client(1)
    getattr(together, begin)(client)
    [(run, *words)] = others.spawned
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, *words)
    assert client.reply_queue[0] is words[0]
    return cast("bytes | None", words[0].reply)


async def test_one_after_the_other_restarts_and_the_one_that_was_asked_is_the_last() -> None:
    others = Others({1: "", 2: None, 3: ""})
    assert await outcome(others, "begin_restart") is None
    asked = [(RESTART.decode(), 1), ("back", 1), (RESTART.decode(), 2), (RESTART.decode(), 3)]
    assert others.story == [("check", 0), *asked, ("back", 3), ("restart", 0)]


async def test_nothing_restarts_if_the_configuration_is_wrong() -> None:
    others = Others({1: ""})
    assert await outcome(others, "begin_restart", "ERR it is wrong") == b"-ERR it is wrong\r\n"
    assert others.story == [("check", 0)]


async def test_the_rest_stays_if_one_does_not_restart() -> None:
    others = Others({1: "ERR no room", 2: ""})
    told = await outcome(others, "begin_restart")
    assert told == b"-ERR RESTART stopped at process 1: no room\r\n"
    lost = Others({1: "", 2: ""}, lost=1)
    told = await outcome(lost, "begin_restart")
    assert told == b"-ERR RESTART stopped at process 1: it has not come back\r\n"
    assert ("restart", 0) not in others.story + lost.story


async def test_all_write_their_jobs_or_go_on() -> None:
    others = Others({1: "", 2: ""})
    assert await outcome(others, "begin_shutdown") is None
    asked = [(DUMP.decode(), 1), (DUMP.decode(), 2)]
    assert others.story == [("dump", 0), *asked, ("shutdown", 0)]
    others = Others({1: "", 2: "disk full"})
    told = await outcome(others, "begin_shutdown")
    assert told == b"-ERR SHUTDOWN stopped at process 2: disk full\r\n"
    assert others.story == [("dump", 0), *asked, (APPLY.decode(), 1), (APPLY.decode(), 2)]
