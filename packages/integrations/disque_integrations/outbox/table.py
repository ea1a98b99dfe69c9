"""The outbox of programs with SQLAlchemy: the table, and ``add``."""

from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.orm import Session, registry, scoped_session

from disque_integrations.outbox.rows import TABLE, Columns, columns
from disque_integrations.outbox.tasks import job_of
from disque_trio.job_options import Headers, JobOptions
from disque_trio.respclient.values import Name
from disque_trio.tasks import Bound

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

Transaction: TypeAlias = (
    "Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any] | Connection"
)


def table_of(metadata: MetaData, name: str = TABLE, schema: str | None = None) -> Table:
    """Return the table of an outbox. Times are seconds since the epoch."""
    sent = Column("sent", Double)
    id = Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    waits = sent.is_(None)
    return Table(
        name,
        metadata,
        id,
        Column("key", Uuid, nullable=False, unique=True),
        Column("queue", Text, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("options", Text, nullable=False, server_default="{}"),
        Column("added", Double, nullable=False),
        Column("again", Double, nullable=False, server_default="0"),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("error", Text),
        sent,
        Column("job", Text),
        Index(f"{name}_waiting", id, postgresql_where=waits, sqlite_where=waits),
        schema=schema,
    )


class Outbox:
    """A table of jobs to add, written in the program's transactions.

    Args:
        metadata: the program's metadata, which creates its tables (``Base.metadata``).
        table, schema: the name and the schema of the table.
        notify: whether to tell ``disque-outbox`` about new rows with PostgreSQL's NOTIFY at the
            commit, so that it need not wait for its next look.

    Attributes:
        table: the ``Table``.
    """

    def __init__(
        self,
        metadata: MetaData,
        *,
        table: str = TABLE,
        schema: str | None = None,
        notify: bool = True,
    ) -> None:
        self.table = table_of(metadata, table, schema)
        self._notify = notify
        self._row: type[Any] = type("OutboxRow", (), {})
        registry(metadata=metadata).map_imperatively(self._row, self.table)

    def add(
        self,
        transaction: Transaction,
        queue: Name,
        body: Name,
        *,
        headers: Headers | None = None,
        **options: Unpack[JobOptions],
    ) -> UUID:
        """Add a job when the transaction commits, and only then.

        The options are those of ``JobOptions``; ``delay`` counts from now on, ``ttl`` from when the
        job is forwarded.

        Args:
            transaction: a session, asynchronous or not, which writes the row with its next flush;
                or a connection, which writes it now. With an ``AsyncConnection``:
                ``await connection.run_sync(outbox.add, "queue", body)``.

        Returns:
            The key of the row, which is also the job's UNIQUE key.

        Raises:
            TypeError: there is no such option.
            ValueError: no node would accept such a job.
        """
        return self._write(transaction, columns(queue, body, headers=headers, **options))

    def _write(self, transaction: Transaction, values: Columns) -> UUID:
        target = _synchronous(transaction)
        if isinstance(target, Session):
            row = self._row()
            for name, value in values.items():
                setattr(row, name, value)
            target.add(row)
            self._notify_after_flush(target)
        else:
            target.execute(insert(self.table).values(**values))
            self._tell(target)
        return values["key"]

    def add_task(self, transaction: Transaction, bound: Bound[Any]) -> UUID:
        """Add a job of a task when the transaction commits:
        ``outbox.add_task(session, send_mail.bind("ann@example.org"))``. Like ``add``; the task's
        ``unique`` applies when the row is forwarded."""
        return self._write(transaction, columns(**job_of(bound)))

    def _notify_after_flush(self, session: Session) -> None:
        if not self._notify:
            return
        if self not in session.info:
            session.info[self] = False

            def tell(session: Session, context: object) -> None:
                if session.info[self]:
                    session.info[self] = False
                    self._tell(session.connection(bind_arguments={"mapper": self._row}))

            event.listen(session, "after_flush", tell)
        session.info[self] = True

    def _tell(self, connection: Connection) -> None:
        if self._notify and connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_notify(self.table.name, "")))


def _synchronous(transaction: Any) -> Session | Connection:
    if callable(transaction):  # a scoped session
        transaction = transaction()
    transaction = getattr(transaction, "sync_session", transaction)
    if isinstance(transaction, Session | Connection):
        return transaction
    if hasattr(transaction, "sync_connection"):
        raise TypeError("await connection.run_sync(outbox.add, queue, body)")
    raise TypeError(f"neither a session nor a connection of SQLAlchemy: {transaction!r}")
