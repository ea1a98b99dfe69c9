"""Chains and groups, serializers, and the test kit itself."""

import asyncio
import pickle
import sys
from typing import Any

import pytest
import trio

from disque_trio.tasks import Disque, ResultGone, TaskFailed
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.messages import Result, Step


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


def test_each_step_of_a_chain_gets_the_result_of_the_previous_one(app: Disque) -> None:
    @app.task(queue="a")
    def double(n: int) -> int:
        return 2 * n

    @app.task(queue="b")
    async def text(n: int, unit: str, *, sign: str = "") -> str:
        return f"{sign}{n} {unit}"

    with app.testing() as jobs:
        handle = double.then(double.bind()).then(text.bind("kg", sign="+")).add(3)
        assert handle.get() == "+12 kg"
        assert handle.get_state() == "done"
        bound = double.bind(1).then(double.bind().then(double.bind())).add()
        assert bound.get() == 8
    assert [(one.queue, one.args) for one in jobs.added[:3]] == [
        ("a", [3]),
        ("a", [6]),
        ("b", [12, "kg"]),
    ]


def test_a_step_that_fails_ends_its_chain(app: Disque) -> None:
    @app.task(retries=1)
    def fail() -> int:
        raise ValueError("no")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    def sized(values: Any) -> int:
        return len(values)

    with app.testing() as jobs:
        handle = fail.then(double.bind()).add()
        with pytest.raises(TaskFailed, match="ValueError: no"):
            handle.get()
        second = double.then(sized.bind()).add(1)
        with pytest.raises(TaskFailed, match="TypeError"):
            second.get()
        assert second.get_state() == "failed"
    assert [one.task.rpartition(".")[2] for one in jobs.added] == ["fail", "double", "sized"]


def test_a_group_passes_on_its_results_in_order(app: Disque) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    def total(values: list[int], more: int) -> int:
        assert values == [2, 8, 6]
        return sum(values) + more

    members = [double.bind(1), double.bind(2).then(double.bind()), double.bind(3)]
    with app.testing():
        assert app.group(members, total.bind(100)).get() == 116
        assert app.group(members[:2]).get() == [2, 8]
        with pytest.raises(ValueError, match="members"):
            app.group([], total.bind(1))

    async def main() -> int:
        return await app.group(members, total.bind(100)).result()

    with app.testing():
        assert trio.run(main) == 116
    with app.testing():
        assert asyncio.run(main()) == 116


def test_a_group_with_a_failed_member_is_a_dead_letter(app: Disque) -> None:
    @app.task(retries=0)
    def check(n: int) -> int:
        if n == 2:
            raise ValueError("two")
        return n

    @app.task
    def total(values: list[int]) -> int:
        return sum(values)

    with app.testing() as jobs:
        handle = app.group([check.bind(1), check.bind(2)], total.bind())
        with pytest.raises(TaskFailed, match="1 of 2 failed, number 2: ValueError: two"):
            handle.get()
    assert jobs.of("total") == []


def test_tasks_may_have_their_own_formats(app: Disque) -> None:
    class Pickle:
        content_type = "application/x-pickle"
        dumps = staticmethod(pickle.dumps)
        loads = staticmethod(pickle.loads)

    @app.task(serializer=Pickle())
    def size(values: set[int]) -> set[int]:
        return values | {len(values)}

    @app.task(serializer="msgpack")
    def raw(data: bytes) -> bytes:
        return data * 2

    @app.task
    def hexed(data: Any) -> Any:
        return data.hex()

    with app.testing() as jobs:
        assert size.add({5, 6}).get() == {2, 5, 6}
        assert raw.add(b"\xff").get() == b"\xff\xff"
        # The result of one becomes an argument in the format of the next.
        assert raw.then(raw.bind()).add(b"\0").get() == b"\0\0\0\0"
        with pytest.raises(TaskFailed, match="JSON"):
            raw.then(hexed.bind()).add(b"\0").get()
    assert jobs.added[0].headers["content-type"] == "application/x-pickle"
    assert jobs.added[1].args == [b"\xff"]


def test_without_msgpack_the_error_says_what_to_install(
    app: Disque, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ImportError, match="msgpack"):
        app.task(serializer="msgpack")(lambda: None)


def test_tuples_come_out_as_they_would_from_a_real_queue(app: Disque) -> None:
    @app.task
    def same(value: Any) -> Any:
        return value

    with app.testing() as jobs:
        assert same.add((1, 2)).get() == [1, 2]
    assert jobs.added[0].args == [[1, 2]]


def test_tasks_in_tests_may_add_others_from_any_thread_or_task(app: Disque) -> None:
    @app.task
    def leaf(n: int) -> int:
        return n

    @app.task
    def branch(n: int) -> int:
        return leaf.add(n + 1).get()

    @app.task
    async def root(n: int) -> int:
        return await branch.add(n + 1).result()

    async def main() -> int:
        return await root.add(1).result()

    with app.testing() as jobs:
        assert root.add(1).get() == 3
    with app.testing(backend="asyncio"):
        assert root.add(1).get() == 3
    with app.testing():
        assert trio.run(main) == 3
    with app.testing():
        assert asyncio.run(main()) == 3
    assert len(jobs.added) == 3
    with pytest.raises(ValueError, match="backend"):
        Disque("disque://a", backend="curio")  # type: ignore[arg-type]


def test_a_test_knows_only_the_jobs_that_it_added(app: Disque) -> None:
    with app.testing():
        handle = app.handle("D-95dfd41b-uzXCAkdG6tQf3Y0wJWTJjYPB-05a1")
        assert handle.get_state() == "gone"
        with pytest.raises(ResultGone):
            handle.get()


def test_steps_and_results_come_back_as_they_were() -> None:
    step = Step("t", "q", "application/json", b'a\n"b"\xff', {"priority": 3}, {"tenant": "ä"})
    assert Step.decode(step.encode()) == step
    for result in (Result(), Result(next="D-1"), Result("a/b", b"x\ny", "D-1"), Result("a/b")):
        assert Result.decode(result.encode()) == result
    assert Result.decode(b"of somebody else") == Result("text/plain", b"of somebody else")
    for data in (b"", b"{}\n", b"[]\n", b"\xff\n"):
        with pytest.raises(BadJob):
            Step.decode(data)
