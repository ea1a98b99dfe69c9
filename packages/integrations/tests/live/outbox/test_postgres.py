"""The outbox in a real PostgreSQL: transactions, several forwarders, NOTIFY."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from disque_integrations.outbox.stop import Stop
from disque_trio.client.batch import NewJob
from packages.integrations.tests.support.outbox import Database, FakeCluster, forwarder, listens
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.postgres import Postgres


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    it = Database(postgres.database())
    yield it
    it.close()


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def stop() -> Iterator[Stop]:
    it = Stop()
    yield it
    it.close()


@contextmanager
def running(database: Database, cluster: FakeCluster, **options: float) -> Iterator[None]:
    """Run a forwarder in a thread."""
    stop = Stop()
    thread = threading.Thread(target=forwarder(database, cluster, **options).run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.request()
        thread.join(HANG_SECONDS)
        stop.close()


def test_a_commit_makes_a_job_and_a_rollback_does_not(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    with Session(database.engine) as session:
        database.outbox.add(session, "q", "1", headers={"a": b"\xff"})
        session.commit()
        database.outbox.add(session, "q", "no")
        session.flush()
        session.rollback()
    assert forwarder(database, cluster).once(stop)
    [job] = cluster.jobs.values()
    assert (job.body, job.headers) == (b"1", [(b"a", b"\xff")])
    assert database.records() == []


def test_rows_are_kept_or_refused_here_too(
    database: Database, cluster: FakeCluster, stop: Stop
) -> None:
    from disque_trio.respclient.errors import PausedError

    database.add("1", "bad", "3")
    cluster.refuse = lambda job: PausedError("PAUSED", "no") if job.body == b"bad" else None
    assert not forwarder(database, cluster, keep=60).once(stop)
    first, bad, third = database.records()
    assert (first.job, third.job) == tuple(f"D-{record.key}" for record in (first, third))
    assert (bad.sent, bad.attempts, bad.error) == (None, 1, "PAUSED no")
    assert database.store.waiting().rows == 1
    assert database.store.forget(third.sent + 1) == 2


def test_an_asyncio_session_writes_rows(database: Database) -> None:
    async def use() -> None:
        engine = create_async_engine(database.url)
        async with AsyncSession(engine) as session, session.begin():
            database.outbox.add(session, "q", "1")
        await engine.dispose()

    asyncio.run(use())
    assert database.bodies() == ["1"]


def test_rows_that_one_forwarder_has_locked_are_not_given_to_another(
    database: Database, cluster: FakeCluster
) -> None:
    database.add("1", "2", "3")
    other = forwarder(database, cluster)
    with database.store.batch(2, 2e9) as batch:
        assert [row.body for row in batch.rows] == [b"1", b"2"]
        assert other.step() == 1
        assert cluster.bodies == ["3"]
    assert other.step() == 2
    assert cluster.bodies == ["3", "1", "2"]


def test_several_forwarders_send_each_row_once(database: Database, cluster: FakeCluster) -> None:
    sent: list[str] = []

    def count(job: NewJob) -> None:
        sent.append(str(job.unique))

    cluster.refuse = count
    keys = database.add(*(str(number) for number in range(500)))
    others = [Database(database.url) for _ in range(3)]
    with ExitStack() as stack:
        for other in others:
            stack.callback(other.close)
            stack.enter_context(running(other, cluster, batch=7))
        wait_until(lambda: not database.records())
    assert sorted(sent) == sorted(str(key) for key in keys)


def test_a_commit_wakes_up_the_forwarder(database: Database, cluster: FakeCluster) -> None:
    # Only a notification is that fast: the next poll is an hour away.
    with running(database, cluster, poll=3600):
        wait_until(lambda: listens(database))
        with Session(database.engine) as session:
            for number in range(3):
                database.outbox.add(session, "q", f"session {number}")
            session.commit()
        wait_until(lambda: len(cluster.jobs) == 3)
        database.add("connection")
        wait_until(lambda: len(cluster.jobs) == 4)


def test_it_continues_after_a_restart_of_the_server(
    postgres: Postgres, database: Database, cluster: FakeCluster
) -> None:
    with running(database, cluster, poll=3600):
        database.add("1")
        wait_until(lambda: cluster.bodies == ["1"] and listens(database))
        postgres.stop()
        postgres.start()
        # Not by ``database``, whose connections are those of the forwarder and of the old server.
        with closing(Database(database.url)) as other:
            wait_until(lambda: listens(other))
            other.add("2")
            wait_until(lambda: cluster.bodies == ["1", "2"])
