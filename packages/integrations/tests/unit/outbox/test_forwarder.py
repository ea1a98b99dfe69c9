"""The forwarder with a real table and a fake cluster."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from disque_integrations.outbox import forwarder as module
from disque_integrations.outbox.forwarder import NodesAway
from disque_integrations.outbox.sql import SqlBatch
from disque_integrations.outbox.stop import Stop
from disque_trio.client.batch import NewJob
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    MaxLenError,
    NoReplError,
    NoUniqueError,
    OOMError,
    ReplyError,
)
from packages.integrations.tests.support.outbox import Database, FakeCluster, forwarder, sqlite


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    it = sqlite(tmp_path)
    yield it
    it.close()


@pytest.fixture
def stop() -> Iterator[Stop]:
    it = Stop()
    yield it
    it.close()


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


class Crash(BaseException):
    """The end of the process."""


def test_rows_become_jobs_in_order_and_are_deleted(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    keys = database.add("1", "2") + database.add("3")
    assert forwarder(database, cluster, batch=2).once(stop)
    assert cluster.bodies == ["1", "2", "3"]
    assert [*cluster.jobs] == [str(key) for key in keys]
    assert cluster.calls == [2, 1]
    assert database.records() == []


def test_a_row_that_was_rolled_back_does_not_become_a_job(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    with database.engine.connect() as connection:
        database.outbox.add(connection, "q", "no")
        connection.rollback()
    database.add("yes")
    forwarder(database, cluster).once(stop)
    assert cluster.bodies == ["yes"]


def test_rows_are_kept_with_their_jobs_and_deleted_later(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    [key] = database.add("1")
    it = forwarder(database, cluster, keep=60)
    assert it.once(stop)
    [record] = database.records()
    assert record.job == f"D-{key}"
    assert it.once(stop)
    assert len(cluster.calls) == 1
    assert database.store.forget(record.sent) == 0
    assert database.store.forget(record.sent + 1) == 1


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_crash_around_the_sending_adds_each_job_once(
    database: Database, cluster: FakeCluster, step: str, monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    database.add("1", "2")
    send = cluster.send

    def crash(jobs: list[NewJob]) -> list[str | DisqueError]:
        if step == "after":
            send(jobs)
        raise Crash

    monkeypatch.setattr(cluster, "send", crash)
    with pytest.raises(Crash):
        forwarder(database, cluster).step()
    monkeypatch.undo()
    assert database.bodies() == ["1", "2"]
    assert forwarder(database, cluster).once(stop)
    assert cluster.bodies == ["1", "2"]


def test_a_crash_before_the_commit_adds_each_job_once(
    database: Database, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    database.add("1")
    settle = SqlBatch.settle

    def crash(*arguments: object) -> None:
        settle(*arguments)  # type: ignore[arg-type]
        raise Crash

    monkeypatch.setattr(SqlBatch, "settle", crash)
    with pytest.raises(Crash):
        forwarder(database, cluster).step()
    monkeypatch.undo()
    assert database.bodies() == ["1"]
    assert forwarder(database, cluster).once(stop)
    assert cluster.bodies == ["1"]


def test_a_refused_row_does_not_block_others_and_is_tried_again(
    database: Database, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    database.add("1", "bad", "3")
    cluster.refuse = lambda job: MaxLenError("MAXLEN", "full") if job.body == b"bad" else None
    it = forwarder(database, cluster)
    assert not it.once(stop)
    assert cluster.bodies == ["1", "3"]
    [record] = database.records()
    assert (record.attempts, record.error) == (1, "MAXLEN full")
    assert (it.counts.sent, it.counts.refused) == (2, 1)
    assert it.step() == 0  # not yet
    waiting = database.store.waiting()
    assert (waiting.rows, waiting.refused, waiting.oldest) == (1, 1, record.added)

    pauses = []
    for _ in range(12):
        monkeypatch.setattr("time.time", lambda now=record.again: now)
        assert it.step() == 1
        before, [record] = record, database.records()
        pauses.append(record.again - before.again)
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    cluster.refuse = lambda job: None
    monkeypatch.setattr("time.time", lambda: record.again)
    assert it.step() == 1
    assert cluster.bodies == ["1", "3", "bad"]
    assert database.records() == []


@pytest.mark.parametrize("options", ["no", r'{"\ud800": 1}', r'{"\u0000": 1}', '{"retry": 1.5}'])
def test_an_invalid_row_of_another_program_is_refused(
    options: str, database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    database.add("bad", "good")
    table = database.outbox.table
    with database.engine.begin() as connection:
        connection.execute(update(table).where(table.c.body == b"bad").values(options=options))
    assert not forwarder(database, cluster).once(stop)
    assert cluster.bodies == ["good"]
    [record] = database.records()
    assert record.attempts == 1
    assert record.error


@pytest.mark.parametrize(
    "error",
    [
        OOMError("OOM", "full"),
        NoUniqueError("NOUNIQ", "no majority"),
        NoReplError("NOREPL", "too few"),
    ],
)
def test_nothing_changes_while_no_node_takes_jobs(
    database: Database, cluster: FakeCluster, error: ReplyError, stop: Stop
) -> None:
    database.add("1", "2")
    cluster.refuse = lambda job: error
    it = forwarder(database, cluster)
    for _ in range(module.PATIENCE):
        with pytest.raises(NodesAway):
            it.step()
    assert [record.attempts for record in database.records()] == [0, 0]
    cluster.refuse = lambda job: None
    assert it.once(stop)
    assert cluster.bodies == ["1", "2"]


def test_nothing_changes_while_no_node_is_reached(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    database.add("1", "2")
    cluster.away = True
    it = forwarder(database, cluster)
    for _ in range(30):
        with pytest.raises(NodesAway):
            it.step()
    assert [record.attempts for record in database.records()] == [0, 0]
    cluster.away = False
    assert it.once(stop)
    assert cluster.calls[-1] == 2


def test_rows_that_never_get_their_copies_let_others_pass_in_the_end(
    database: Database, cluster: FakeCluster
) -> None:
    database.add("bad", "bad", "good")
    cluster.refuse = lambda job: NoReplError("NOREPL", "few") if job.body == b"bad" else None
    it = forwarder(database, cluster, batch=2)
    for _ in range(module.PATIENCE):
        with pytest.raises(NodesAway):
            it.step()
    assert it.step() == 2
    assert it.step() == 1
    assert cluster.bodies == ["good"]
    assert [record.attempts for record in database.records()] == [1, 1]


def test_rows_that_nodes_refuse_slowly_let_others_pass(
    database: Database, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time() + 10
    database.add("bad", "bad", *(str(number) for number in range(6)))
    cluster.refuse = lambda job: NoUniqueError("NOUNIQ", "") if job.body == b"bad" else None
    send = cluster.send

    def slowly(jobs: list[NewJob]) -> list[str | DisqueError]:
        nonlocal now
        now += 5 if jobs[0].body == b"bad" else 0.01
        return send(jobs)

    monkeypatch.setattr(cluster, "send", slowly)
    monkeypatch.setattr("time.time", lambda: now)
    it = forwarder(database, cluster, batch=2)
    for _ in range(module.PATIENCE):
        with pytest.raises(NodesAway):
            it.step()
    for _ in range(4):
        assert it.step() == 2
    assert cluster.bodies == [str(number) for number in range(6)]
    now += 5
    assert it.step() == 2  # they are skipped now
    assert [record.attempts for record in database.records()] == [2, 2]


@pytest.mark.parametrize("error", [ConnectionLost("no"), OOMError("OOM", "full")])
def test_rows_that_a_node_did_not_get_to_are_the_next_ones(
    database: Database, cluster: FakeCluster, error: DisqueError, stop: Stop
) -> None:
    database.add("1", "2", "3")
    cluster.refuse = lambda job: None if job.body == b"1" else error
    it = forwarder(database, cluster)
    it.step()
    assert [(record.body, record.attempts) for record in database.records()] == [
        (b"2", 0),
        (b"3", 0),
    ]
    database.add("4")
    cluster.refuse = lambda job: None
    assert it.once(stop)
    assert cluster.bodies == ["1", "2", "3", "4"]


def test_a_row_that_makes_nodes_close_the_connection_is_found(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    database.add(*(str(number) for number in range(10)))
    cluster.closes_on = b"6"
    it = forwarder(database, cluster)
    assert not it.once(stop)
    assert cluster.bodies == [str(number) for number in range(10) if number != 6]
    assert [(record.body, record.attempts) for record in database.records()] == [(b"6", 1)]
    database.add(*(str(number) for number in range(100, 200)))
    assert not it.once(stop)
    assert max(cluster.calls[-4:]) > 10  # it is as fast as before


def test_two_forwarders_that_read_the_same_rows_add_each_job_once(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    database.add("1", "2")
    one = forwarder(database, cluster)
    with database.store.batch(10, 2e9) as batch:
        assert len(batch.rows) == 2
        assert one.step() == 2
        database.add("3")
        answers = cluster.send([row.job() for row in batch.rows])
        batch.settle(
            [(row, str(id)) for row, id in zip(batch.rows, answers, strict=True)], [], False
        )
    assert database.bodies() == ["3"]
    assert one.once(stop)
    assert cluster.bodies == ["1", "2", "3"]


def test_it_continues_when_the_database_is_back(
    database: Database, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    database.add("1")
    failures = 3
    batch = database.store.batch

    @contextmanager
    def broken(limit: int, now: float) -> Iterator[SqlBatch]:
        nonlocal failures
        if failures:
            failures -= 1
            raise database.store.errors[0]("away")
        with batch(limit, now) as it:
            if not it.rows:
                stop.request()
            yield it

    monkeypatch.setattr(database.store, "batch", broken)
    monkeypatch.setattr(module, "PAUSES", (0.001, 0.001))
    forwarder(database, cluster).run(stop)
    assert failures == 0
    assert cluster.bodies == ["1"]


def test_it_stops_after_the_current_batch(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    database.add("1", "2", "3")

    def stopping(job: NewJob) -> None:
        stop.request()

    cluster.refuse = stopping
    forwarder(database, cluster, batch=2).run(stop)
    assert cluster.bodies == ["1", "2"]
    assert database.bodies() == ["3"]
