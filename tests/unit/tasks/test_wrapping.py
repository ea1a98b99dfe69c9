"""Encrypted arguments and results, and those that are kept in a store."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from disque_trio.tasks import BucketFailed, Disque, Encrypted, Files, Serializer, Stored
from disque_trio.tasks.calling import InLoop
from disque_trio.tasks.execution import Execution
from disque_trio.tasks.messages import encode_arguments
from tests.support.fake_job import FakeJob

pytest.importorskip("cryptography")

KEY = Encrypted.new_key()


class Memory(dict[str, bytes]):
    """A store. ``away``: it fails."""

    away = False

    def put(self, name: str, data: bytes) -> None:
        self._answer()
        self[name] = data

    def get(self, name: str) -> bytes:  # type: ignore[override]
        self._answer()
        return self[name]

    def _answer(self) -> None:
        if self.away:
            raise TimeoutError("no store")


def app_with(serializer: Serializer) -> Disque:
    return Disque("disque://nowhere.invalid", serializer=serializer)


def test_nobody_without_the_key_sees_or_changes_anything() -> None:
    encrypted = Encrypted(KEY)
    data = encrypted.dumps({"card": "4000 0000"})
    assert b"4000" not in data
    assert data != encrypted.dumps({"card": "4000 0000"})
    assert encrypted.loads(data) == {"card": "4000 0000"}
    for wrong, reader in (
        (data[:-1] + bytes([data[-1] ^ 1]), encrypted),
        (b"plain", encrypted),
        (data, Encrypted(Encrypted.new_key())),
    ):
        with pytest.raises(ValueError, match="not encrypted with one of the keys"):
            reader.loads(wrong)


def test_a_key_can_be_replaced() -> None:
    new = Encrypted.new_key()
    old, both, turned = Encrypted(KEY), Encrypted([KEY, new]), Encrypted([new, KEY])
    assert both.loads(turned.dumps(1)) == turned.loads(both.dumps(1)) == both.loads(old.dumps(1))


@pytest.mark.parametrize("keys", ["secret", [], ["x" * 44]])
def test_keys_are_checked(keys: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        Encrypted(keys)


@pytest.mark.parametrize(
    "serializer",
    [Encrypted(KEY), Stored(Memory(), above=3), Stored(Memory(), Encrypted(KEY), above=3)],
)
def test_chains_groups_and_results_go_through_it(serializer: Serializer) -> None:
    app = app_with(serializer)

    @app.task
    def double(text: str) -> str:
        return text * 2

    @app.task
    def join(texts: list[str]) -> str:
        return "".join(texts)

    with app.testing() as jobs:
        assert double.then(double.bind()).add("secret").get() == "secret" * 4
        assert app.group([double.bind("a"), double.bind("b")], join.bind()).get() == "aabb"
    assert {job.headers["content-type"] for job in jobs.of("double")} == {serializer.content_type}


def test_equal_arguments_have_the_same_key_although_their_bytes_differ() -> None:
    app = app_with(Stored(Memory(), Encrypted(KEY)))

    @app.task(unique=True)
    def once(n: int) -> None: ...

    with app.testing(run=False) as jobs:
        ids = {once.add(1).id, once.add(n=1).id, once.add(2).id}
    assert len(ids) == len(jobs.added) == 2


def test_a_schedule_with_the_same_arguments_is_the_same() -> None:
    app = app_with(Encrypted(KEY))

    @app.task
    def report(days: int) -> None: ...

    one, other, third = report.bind(7), report.bind(7), report.bind(8)
    assert one.step.body != other.step.body
    assert one.same_arguments(other.step.body)
    assert not one.same_arguments(third.step.body)
    assert not one.same_arguments(b"plain")


def test_only_what_is_large_is_stored() -> None:
    store = Memory()
    stored = Stored(store, above=10)
    assert stored.loads(stored.dumps("small")) == "small"
    assert store == {}
    assert len(stored.dumps("x" * 5_000_000)) < 100
    assert stored.loads(stored.dumps("x" * 5_000_000)) == "x" * 5_000_000
    assert len(store) == 1


def test_what_comes_from_the_store_is_checked() -> None:
    store = Memory()
    stored = Stored(store, above=0)
    data = stored.dumps("value")
    [name] = store
    store[name] = b'"other"'
    with pytest.raises(ValueError, match="changed"):
        stored.loads(data)
    del store[name]
    with pytest.raises(ValueError, match="gone"):
        stored.loads(data)
    for wrong in (b"", b"\1../../etc/passwd", b"\2" + name.encode()):
        with pytest.raises(ValueError, match="names nothing"):
            stored.loads(wrong)


async def test_a_store_that_fails_is_tried_again_and_what_is_gone_is_dead() -> None:
    store = Memory()
    stored = Stored(store, above=0)
    app = app_with(stored)

    @app.task(name="work")
    async def work(n: int) -> int:
        store.away = n == 2
        return n

    execution = Execution(app.core, InLoop())

    async def run(body: bytes) -> tuple[str, str]:
        job = FakeJob("work", body, content_type=stored.content_type)
        outcome = await execution.run(job)
        return outcome.kind, outcome.error

    first, second = (encode_arguments(stored, (n,), {}) for n in (1, 2))
    assert (await run(first))[0] == "done"
    kind, error = await run(second)  # its result cannot be kept
    assert (kind, "no store" in error) == ("retried", True)
    kind, error = await run(first)
    assert (kind, "no store" in error) == ("retried", True)
    with pytest.raises(BucketFailed):
        await work.add(3)
    store.away = False
    store.clear()
    kind, error = await run(first)
    assert (kind, "gone from the store" in error) == ("dead", True)


async def test_workers_use_a_store_in_threads() -> None:
    class Threads(Memory):
        def _answer(self) -> None:
            assert not trio.lowlevel.in_trio_task() or self.here

        here = True

    store = Threads()
    stored = Stored(store, above=0)
    app = app_with(stored)

    @app.task(name="work")
    async def work(n: int) -> int:
        return n

    job = FakeJob("work", encode_arguments(stored, (1,), {}), content_type=stored.content_type)
    store.here = False
    assert (await Execution(app.core, InLoop()).run(job)).kind == "done"


def test_a_directory_is_a_store(tmp_path: Path) -> None:
    files = Files(tmp_path / "large")
    app = app_with(Stored(files, above=100))

    @app.task(retries=0)
    def size(data: str) -> str:
        return data * 2

    with app.testing():
        assert size.add("x" * 1000).get() == "x" * 2000
        assert size.add("x" * 1000).get() == "x" * 2000
    kept = list((tmp_path / "large").iterdir())
    assert len(kept) == 2
    os.utime(kept[0], (0, 0))
    assert files.delete_older(3600) == 1
