"""The outbox in a database supported by SQLAlchemy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    bindparam,
    create_engine,
    delete,
    func,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from disque_integrations.outbox.listening import Notifications
from disque_integrations.outbox.rows import TABLE, Row, row_of
from disque_integrations.outbox.store import Refusal, Waiting
from disque_integrations.outbox.table import table_of

# Drivers for asyncio, and missing drivers, with the driver to use here for the same database.
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+asyncpg": "postgresql+psycopg",
    "sqlite+aiosqlite": "sqlite",
}
_LOCKING = ("postgresql", "mysql", "mariadb", "oracle")  # databases with SKIP LOCKED


def engine_for(url: str) -> Engine:
    """Return an engine for a program without asyncio.

    Raises:
        SQLAlchemyError: the URL is malformed.
        ModuleNotFoundError: the driver is not installed.
    """
    parsed = make_url(url)
    driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
    return create_engine(parsed.set(drivername=driver), pool_pre_ping=True)


class SqlStore:
    """The outbox table ``name`` (or ``schema.name``); see ``Store``."""

    def __init__(self, engine: Engine, name: str = TABLE) -> None:
        schema, _, table = name.rpartition(".")
        self._engine = engine
        self._table = table_of(MetaData(), table, schema or None)
        self._locks = engine.dialect.name in _LOCKING
        # The driver's own errors come from the connection that listens.
        self.errors = (SQLAlchemyError, engine.dialect.loaded_dbapi.Error)

    @contextmanager
    def batch(self, limit: int, now: float) -> Iterator["SqlBatch"]:
        columns = self._table.c
        due = (
            select(columns.key, columns.queue, columns.body, columns.options, columns.attempts)
            .where(columns.sent.is_(None), columns.again <= now)
            .order_by(columns.id)
            .limit(limit)
        )
        if self._locks:
            due = due.with_for_update(skip_locked=True)
        with self._engine.connect() as connection:
            rows = [row_of(*record) for record in connection.execute(due)]
            if not self._locks:
                # A transaction would keep others from writing while rows are sent. If two
                # forwarders read the same row, UNIQUE makes sure that it is added once.
                connection.rollback()
            yield SqlBatch(connection, self._table, rows, now)
            connection.commit()

    def waiting(self) -> Waiting:
        columns = self._table.c
        refused = func.count().filter(columns.attempts > 0)
        question = select(func.count(), refused, func.min(columns.added))
        with self._engine.connect() as connection:
            found = connection.execute(question.where(columns.sent.is_(None))).one()
            return Waiting(*found)

    def forget(self, before: float) -> int:
        old = delete(self._table).where(self._table.c.sent < before)
        with self._engine.begin() as connection:
            return connection.execute(old).rowcount

    def listen(self) -> Notifications | None:
        dialect = self._engine.dialect
        if (dialect.name, dialect.driver) != ("postgresql", "psycopg"):
            return None
        arguments, options = dialect.create_connect_args(self._engine.url)
        connection: Any = dialect.connect(*arguments, **options)
        return Notifications(connection, self._table.name)

    def disconnect(self) -> None:
        self._engine.dispose()


class SqlBatch:
    """See ``Batch``."""

    def __init__(self, connection: Connection, table: Any, rows: Sequence[Row], now: float) -> None:
        self._connection = connection
        self._table = table
        self.rows = rows
        self._now = now

    def settle(
        self, sent: Sequence[tuple[Row, str]], refused: Sequence[Refusal], keep: bool
    ) -> None:
        columns = self._table.c
        one = columns.key == bindparam("of")
        if sent and keep:
            mark = update(self._table).where(one).values(sent=self._now, job=bindparam("job_id"))
            self._connection.execute(mark, [{"of": row.key, "job_id": id} for row, id in sent])
        elif sent:
            keys = [row.key for row, _ in sent]
            self._connection.execute(delete(self._table).where(columns.key.in_(keys)))
        if refused:
            values = {"attempts": columns.attempts + 1, "error": bindparam("why")}
            later = update(self._table).where(one).values(**values, again=bindparam("at"))
            found = [{"of": r.row.key, "why": r.error, "at": r.again} for r in refused]
            self._connection.execute(later, found)
