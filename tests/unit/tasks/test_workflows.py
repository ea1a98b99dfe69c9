"""Chains and groups that are made of each other, and who hears of it when they fail."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import trio

from disque_trio.client import ReplyError
from disque_trio.tasks import (
    CurrentJob,
    Disque,
    TaskFailed,
    TaskProgress,
    WorkflowStatus,
    chain,
    current_job,
    group,
)
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.members import Members, behind
from disque_trio.tasks.messages import MOST_FOLLOWING, Opened, Result, Step, pack, unpack


class Program:
    """An app with some tasks."""

    def __init__(self) -> None:
        self.app = app = Disque("disque://nowhere.invalid")
        self.told: list[tuple[str, Any]] = []

        @app.task(queue="a", retries=0)
        def add(n: int, more: int = 0) -> int:
            if n + more == 13:
                raise ValueError("thirteen")
            return n + more

        @app.task(queue="b")
        async def total(values: list[int], more: int = 0) -> int:
            return sum(values) + more

        @app.task
        def flat(values: list[Any]) -> str:
            return repr(values).replace(" ", "")

        @app.task
        def tell(what: Any, name: str = "error") -> None:
            self.told.append((name, what))

        self.add = add
        self.total = total
        self.flat = flat
        self.tell = tell


@pytest.fixture
def program() -> Program:
    return Program()


def test_a_chain_can_be_written_in_three_ways(program: Program) -> None:
    add = program.add
    with program.app.testing() as jobs:
        assert (add | add.bind(2) | add.bind(3)).add(1).get() == 6
        assert (add.bind(1) | add.bind(2) | add.bind(3)).add().get() == 6
        assert chain([add.bind(1), add.bind(2) | add.bind(3), add.bind(4)]).add().get() == 10
        assert chain([add.bind(1)]).add().get() == 1
        with pytest.raises(ValueError, match="a chain needs steps"):
            chain([])
        with pytest.raises(TypeError, match="bind"):
            chain([add])  # type: ignore[list-item]
    assert [one.args for one in jobs.added[:3]] == [[1], [1, 2], [3, 3]]


def test_a_group_is_a_step_like_any_other(program: Program) -> None:
    add, total, flat = program.add, program.total, program.flat
    several = group([add.bind(10), add.bind(20) | add.bind(5), add.bind()])
    nested = group([group([add.bind(1), add.bind(2)]), add.bind(3), several])
    work = chain([add.bind(1), several, total.bind(100), nested, flat.bind()])
    expected = "[[139,140],141,[148,163,138]]"
    with program.app.testing():
        assert work.add().get() == expected
        assert (add.bind(1) | group([add.bind(1), add.bind(2)])).add().get() == [2, 3]
        assert group([add.bind(1), group([add.bind(2)])]).add().get() == [1, [2]]
        assert program.app.group([group([add.bind(1)]), add.bind(2)]).get() == [[1], 2]
        assert (add | group([add.bind(1)]) | total.bind()).add(1).get() == 2
        with pytest.raises(ValueError, match="members"):
            group([])

    async def main() -> object:
        return await work.add().result()

    with program.app.testing():
        assert trio.run(main) == expected
    with program.app.testing():
        assert asyncio.run(main()) == expected


def test_long_chains_are_at_the_end_of_the_body(program: Program) -> None:
    text = "x" * 2000

    @program.app.task
    def longer(n: int, text: str) -> int:
        assert text == "x" * 2000
        return n + 1

    steps = [longer.bind(text) for _ in range(59)]
    with program.app.testing() as jobs:
        handle = chain([longer.bind(0, text), *steps]).on_error(program.tell.bind()).add()
        assert handle.get() == 60
        everything = [longer.options(headers={"n": "1"}).bind(0, text), *steps]
        assert program.app.group([chain(everything)], then=program.total.bind()).get() == 60
    assert [one.args for one in jobs.added[:60]] == [[n, text] for n in range(60)]
    for one in jobs.added:
        assert sum(len(name) + len(value) for name, value in one.headers.items()) < 65_536
    assert "then-in-body" in jobs.added[0].headers
    assert "then-in-body" not in jobs.added[59].headers
    assert program.told == []


def test_headers_that_no_node_takes_are_refused_in_tests_too(program: Program) -> None:
    with program.app.testing(run=False) as jobs:
        long = program.add.options(headers={"note": "x" * 65_536})
        with pytest.raises(ReplyError, match="HEADERS are longer than 65536 bytes in total"):
            long.add(1)
        assert jobs.added == []
        # Steps make room for the program's own headers.
        steps = [program.add.bind(1) for _ in range(100)]
        chain([program.add.options(headers={"note": "x" * 60_000}).bind(1), *steps]).add()
    assert "then-in-body" in jobs.added[0].headers


def test_two_hundred_steps_and_ten_thousand_members_need_no_larger_stack(program: Program) -> None:
    add = program.add
    with program.app.testing():
        steps = chain([add.bind(1000), *[add.bind(1)] * 199])
        assert steps.add().get() == 1199
        members = [add.bind(100 + n) for n in range(10_000)]
        work = chain([group(members), program.total.bind(), steps_of_one(program)])
        assert work.add().get() == sum(range(100, 10_100)) + 199
        assert group([steps, steps]).add().get() == [1199, 1199]


def steps_of_one(program: Program) -> Any:
    return chain([program.add.bind(1) for _ in range(199)])


def test_missing_arguments_are_refused_where_nothing_comes_before(program: Program) -> None:
    add, total = program.add, program.total
    app = program.app
    lacks = add.bind(more=3)
    with app.testing() as jobs:
        for use in (
            lacks.add,
            (lacks | add.bind()).add,
            chain([lacks, add.bind()]).add,
            group([add.bind(1), lacks]).add,
            lambda: app.group([lacks]),
            lambda: app.group([add.bind(1), lacks], then=total.bind()),
            lambda: app.schedule("x", "@daily", lacks),
            lambda: lacks.step,
        ):
            with pytest.raises(TypeError, match="add: missing a required argument: 'n'"):
                use()
        for refused in (
            lambda: add.bind(1) | add.bind(1, 2),
            lambda: add | add.bind(1, 2),
            lambda: add.bind(1) | group([add.bind(), add.bind(1, 2)]),
            lambda: chain([add.bind(1), add.bind(1, 2)]),
            lambda: app.group([add.bind(1)], then=add.bind(1, 2)),
            lambda: add.bind(1).on_error(add.bind(1, 2)),
        ):
            with pytest.raises(TypeError, match="add: too many positional arguments"):
                refused()
        with pytest.raises(TypeError, match="too many"):
            add.bind(1, 2, 3)  # type: ignore[call-overload]
        assert (add.bind(1) | lacks).add().get() == 4
    assert len(jobs.added) == 2


def test_an_error_is_told_with_what_failed(program: Program) -> None:
    add, tell = program.add, program.tell
    with program.app.testing() as jobs:
        first = (add.bind(1) | add.bind(12) | add.bind(5)).on_error(tell.bind())
        with pytest.raises(TaskFailed, match="thirteen"):
            first.add().get()
        [(name, what)] = program.told
        assert name == "error"
        failed = jobs.of("add")[1]
        assert what == {
            "id": failed.id,
            "task": failed.task,
            "queue": "a",
            "type": "ValueError",
            "text": "thirteen",
        }
        program.told.clear()
        # The nearest one is told.
        inner = add.bind(12).on_error(tell.bind("inner"))
        with pytest.raises(TaskFailed):
            (add.bind(1) | inner | add.bind(1)).on_error(tell.bind("outer")).add().get()
        assert [name for name, _ in program.told] == ["inner"]
        program.told.clear()
        with pytest.raises(TaskFailed):
            (add.on_error(tell.bind("template") | tell.bind())).options(priority=1).add(13).get()
        assert [name for name, _ in program.told] == ["template", "error"]
        assert (add.bind(1) | add.bind(2)).on_error(tell.bind()).add().get() == 3
        assert len(program.told) == 2


def test_a_failed_member_is_told_to_whom_it_concerns(program: Program) -> None:
    add, tell, total = program.add, program.tell, program.total
    members = [add.bind(1), add.bind(13), add.bind(3), add.bind(12) | add.bind(1)]
    with program.app.testing() as jobs:
        work = group(members, on_complete=tell.bind("complete"), on_death=tell.bind("death"))
        handle = chain([work, total.bind()]).on_error(tell.bind()).add()
        with pytest.raises(TaskFailed, match="2 of 4 failed, number 2: ValueError: thirteen"):
            handle.get()
        why = {"1": "ValueError: thirteen", "3": "ValueError: thirteen"}
        told = dict(program.told)
        assert told.keys() == {"complete", "death", "error"}
        assert told["error"]["failed"] == told["complete"]["failed"] == why
        assert told["death"]["failed"].keys() == {"1", "3"}
        assert told["error"]["total"] == told["complete"]["total"] == 4
        assert told["complete"]["id"] == told["error"]["id"] == handle.id
        assert jobs.of("total") == []


def test_a_group_may_go_on_with_those_that_succeeded(program: Program) -> None:
    add, tell, total = program.add, program.tell, program.total
    members = [add.bind(1), add.bind(13), add.bind(3)]
    with program.app.testing():
        work = group(members, skip_failed=True, on_complete=tell.bind("complete"))
        assert (work | total.bind(100)).add().get() == 104
        assert work.add().get() == [1, 3]
        assert group([add.bind(13)], skip_failed=True).add().get() == []
        assert program.app.group(members, then=total.bind(), skip_failed=True).get() == 4
        nested = group([work, add.bind(5)])
        assert (nested | program.flat.bind()).add().get() == "[[1,3],5]"
        with pytest.raises(TypeError, match="then"):
            program.app.group(members, skip_failed=True)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="skip_failed"):
            group(members, skip_fail=True)  # type: ignore[call-arg]
    assert [name for name, _ in program.told] == ["complete"] * 3
    assert program.told[0][1]["failed"] == {"1": "ValueError: thirteen"}


def test_a_group_has_a_queue_a_key_and_a_delay(program: Program) -> None:
    add, total = program.add, program.total
    with program.app.testing(run=False) as jobs:
        members = [add.options(priority=3, replicate=1).bind(1)]
        plain = group(members).add()
        other = group(members, queue="c", delay=5, unique="x").add()
        again = group(members, queue="c", unique="x", unique_for=60).add()
        last = program.app.group(members, then=total.bind(), unique="y", unique_for=60).id
        assert program.app.group(members, total.bind(), unique="y").id == last
        keyed = add.options(unique="z").bind(1)
        assert keyed.add().id == (keyed | add.bind()).add().id
    assert plain.id != other.id == again.id
    assert [(one.queue, one.options) for one in jobs.added[:3]] == [
        ("a", {"retry": 30, "priority": 3, "replicate": 1}),
        ("c", {"retry": 30, "priority": 3, "replicate": 1, "delay": 5}),
        ("b", {"retry": 30}),
    ]


def test_a_handle_says_how_far_a_group_is(program: Program) -> None:
    add, total, tell = program.add, program.total, program.tell
    members = [add.bind(n) for n in range(20)]
    with program.app.testing(run=False):
        assert group(members).add().get_status() == WorkflowStatus(20, 0)
        assert add.add(1).get_status() is None
        handle = program.app.handle("D-00000000-" + "9" * 24 + "-05a1")
        assert handle.get_status() is None
    with program.app.testing():
        ended = (add.bind(0) | group([add.bind(1), add.bind(13)], skip_failed=True)).add()
        assert ended.get_status() == WorkflowStatus(2, 1, {1: ""})
        failed = program.app.group(members, total.bind())
        assert failed.get_status() is None  # of a dead letter, tests keep no body
        handle = (group(members[:3]) | total.bind() | tell.bind()).add()
        assert handle.get_status() == WorkflowStatus(3, 3)
        assert WorkflowStatus(60, 37, {3: "x"}).pending == 22

    async def main() -> object:
        return await (await group(members[:3]).add()).status()

    with program.app.testing():
        assert trio.run(main) == WorkflowStatus(3, 3)


def test_a_retried_task_adds_nothing_twice(program: Program) -> None:
    add, total, app = program.add, program.total, program.app
    attempts: list[int] = []

    @app.task
    def parent(unique: bool) -> list[int]:
        attempts.append(len(attempts))
        same = [add.add(1), add.add(1), *add.map([1, 2])]
        _ = add.add(100 + attempts[-1])  # something else each time
        free = add if unique else add.options(unique=False)
        options: Any = {} if unique else {"unique": False}
        group_of = group([free.bind(3), free.bind(4)], **options)
        own = [free.add(5), (free | add.bind(1)).add(6), (group_of | total.bind()).add()]
        _ = app.group([add.bind(7)], then=total.bind()).id
        if len(attempts) < 3:
            raise ValueError("again")
        return [handle.get() for handle in same + own]

    @app.task
    async def in_loop() -> None:
        attempts.append(1)
        await add.add(8)
        if len(attempts) < 3:
            raise ValueError("again")

    with app.testing() as jobs:
        assert parent.add(True).get() == [1, 1, 1, 2, 5, 7, 7]
        args = sorted(job.args[0] for job in jobs.of("add") if len(job.args) == 1)
        assert args == [1, 1, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102]
        assert len(jobs.of("total")) == 2
    attempts.clear()
    with app.testing() as jobs:
        _ = parent.add(False).id
        args = sorted(job.args[0] for job in jobs.of("add") if len(job.args) == 1)
        assert args == sorted([1, 1, 1, 2, *[3, 4, 5, 6] * 3, 7, 100, 101, 102])
    attempts.clear()
    with app.testing() as jobs:
        in_loop.add().get()
        assert (len(attempts), len(jobs.of("add"))) == (3, 1)
    with app.testing() as jobs:  # without tasks, each is another one
        _ = add.add(1), add.add(1)
        assert len(jobs.added) == 2


def test_keys_of_jobs_that_tasks_add_are_kept_while_they_may_be_retried() -> None:
    def kept(retries: int, backoff: tuple[float, float]) -> float:
        job: Any = None
        return CurrentJob("D-1", "q", "t", 1, retries, {}, job, backoff).kept

    assert kept(0, (1, 600)) == 3600
    assert kept(5, (1, 600)) == 3600 + 31 * 1.25
    assert kept(3, (600, 600)) == 3600 + 1800 * 1.25
    assert kept(1000, (1, 86_400)) == 86_400


def test_a_task_says_how_far_it_is(program: Program) -> None:
    seen: list[object] = []

    @program.app.task
    def export(pages: int) -> None:
        job = current_job()
        assert job is not None
        handle = program.app.handle(job.id)
        seen.append(handle.get_progress())
        for page in range(pages):
            job.progress(page / pages, f"page {page} of {pages}")
            seen.append(handle.get_progress())
        wrong: Any = None
        with pytest.raises(TypeError):
            job.progress(0.5, wrong)
        with pytest.raises(ValueError, match="from 0 to 1"):
            job.progress(1.5)

    with program.app.testing() as jobs:
        handle = export.add(2)
        assert handle.get_progress() is None  # it has ended
    wanted = [(0.0, "page 0 of 2"), (0.5, "page 1 of 2")]
    assert seen == [None, *[TaskProgress(*one) for one in wanted]]
    assert jobs.added[0].progress == wanted
    with program.app.testing(run=False):
        waiting = group([export.bind(1), export.bind(2)]).add()
        assert waiting.get_progress() == TaskProgress(0, "0 of 2")
        assert export.add(1).get_progress() is None


def test_packed_steps_come_back_as_they_were() -> None:
    error = Step("e", "q", "application/json", b"{}", then=(Step("f", "q", "a/b", b"\n"),))
    step = Step("t", "q", "application/json", b"{}", {"priority": 3}, on_error=error)
    step = replace(step, then=tuple(error.chain))
    assert unpack(pack(step)) == step
    for size in 10, MOST_FOLLOWING:
        then = (Step("u", "q", "a/b", b"\n" * size), *error.chain)
        body, pairs = Step("t", "q", "a/b", b"body", then=then, on_error=error).job(None)
        assert Opened.of(body, pairs) == Opened(b"body", then, error)
        assert (body == b"body") is (size == 10)
    members = Members((pack(step), b""), 30, 2, "a/b", True, error, step, Result("a/b", b"\n"))
    assert Members.decode(members.encode()) == members
    for data in (b"", b"{}\n[]\n", b"[]\n[]\n", b"{}\n", b"{}\n[1]\n"):
        with pytest.raises(BadJob):
            Members.decode(data)
        with pytest.raises(BadJob):
            unpack(data)
    for value in (b"0", b"x", b"99"):
        with pytest.raises(BadJob):
            Opened.of(b"body", [("then-in-body", value)])
    with pytest.raises(BadJob):
        behind(Disque("disque://nowhere.invalid").core, Step("t", "q", "a/b", b""), 1)
