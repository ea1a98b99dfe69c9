"""Outboxes in test databases, and a fake cluster."""

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine, MetaData, create_engine, select, text
from sqlalchemy.engine import Row as Record

from disque_integrations.outbox import Outbox
from disque_integrations.outbox.forwarder import Forwarder
from disque_integrations.outbox.sql import SqlStore
from disque_trio.client.batch import NewJob
from disque_trio.process.logs import Logging
from disque_trio.respclient.errors import ConnectionLost, DisqueError


class Database:
    """A database with an outbox, and the program's own table ``orders``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = create_engine(url)
        self.metadata = MetaData()
        self.outbox = Outbox(self.metadata)
        self.metadata.create_all(self.engine)
        self.store = SqlStore(self.engine)

    def add(self, *bodies: str, queue: str = "q") -> list[UUID]:
        """Add jobs in a separate transaction."""
        with self.engine.begin() as connection:
            return [self.outbox.add(connection, queue, body) for body in bodies]

    def records(self) -> Sequence[Record]:  # type: ignore[type-arg]
        """All rows, in order."""
        table = self.outbox.table
        with self.engine.connect() as connection:
            return connection.execute(select(table).order_by(table.c.id)).all()

    def bodies(self) -> list[str]:
        return [record.body.decode() for record in self.records()]

    def close(self) -> None:
        self.engine.dispose()


class FakeCluster:
    """Adds jobs like a cluster, and records their keys.

    Attributes:
        jobs: added ones. refuse: returns why a job is refused, or None. away: whether all nodes are
            unreachable.
        closes_on: a node closes the connection when it gets this body.
        calls: the batch sizes.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, NewJob] = {}
        self.refuse: Callable[[NewJob], DisqueError | None] = lambda job: None
        self.away = False
        self.closes_on: bytes | None = None
        self.calls: list[int] = []

    @property
    def bodies(self) -> list[str]:
        return [bytes(job.body).decode() for job in self.jobs.values()]  # type: ignore[arg-type]

    def send(self, jobs: Sequence[NewJob]) -> list[str | DisqueError]:
        self.calls.append(len(jobs))
        if self.away or any(job.body == self.closes_on for job in jobs):
            return [ConnectionLost("the connection was closed")] * len(jobs)
        return [self.refuse(job) or self._add(job) for job in jobs]

    def _add(self, job: NewJob) -> str:
        key = str(job.unique)
        self.jobs.setdefault(key, job)
        return "D-" + key

    def reaches_a_node(self) -> bool:
        return not self.away


def forwarder(database: Database, cluster: FakeCluster, **options: float) -> Forwarder:
    """A forwarder from the database to the cluster."""
    log = Logging("warning").log
    return Forwarder(database.store, cluster, log, **options)  # type: ignore[arg-type]


def sqlite(directory: Path) -> Database:
    return Database(f"sqlite:///{directory}/outbox.db")


def listens(database: Database) -> bool:
    """Whether somebody listens for notifications of this PostgreSQL."""
    question = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
        " AND datname = current_database()"
    )
    with database.engine.connect() as connection:
        count: int = connection.execute(text(question)).scalar_one()
        return count > 0
