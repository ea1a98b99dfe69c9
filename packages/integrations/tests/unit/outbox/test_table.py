"""``Outbox.add`` in the SQLAlchemy transactions of a program, on SQLite."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Integer, MetaData, create_engine, inspect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from disque_integrations.outbox import Outbox
from disque_integrations.outbox.sql import engine_for
from disque_trio.extras import how_to_install
from packages.integrations.tests.support.outbox import Database, sqlite


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    it = sqlite(tmp_path)
    yield it
    it.close()


def test_a_session_writes_the_rows_when_it_commits(database: Database) -> None:
    with Session(database.engine) as session:
        key = database.outbox.add(session, "q", "1", retry=7)
        database.outbox.add(session, "q", b"2")
        session.commit()
    [first, second] = database.records()
    assert (first.key, first.queue, first.body, first.options) == (key, "q", b"1", '{"retry":7}')
    assert (second.body, second.attempts, second.again, second.sent) == (b"2", 0, 0, None)


def test_a_session_that_is_rolled_back_writes_nothing(database: Database) -> None:
    with Session(database.engine) as session:
        database.outbox.add(session, "q", "1")
        session.flush()
        session.rollback()
        database.outbox.add(session, "q", "2")
        session.rollback()
        session.commit()
        session.begin()
        database.outbox.add(session, "q", "3")
    assert database.records() == []


def test_a_savepoint_that_is_rolled_back_discards_its_rows(database: Database) -> None:
    with Session(database.engine) as session:
        database.outbox.add(session, "q", "1")
        with session.begin_nested() as inner:
            database.outbox.add(session, "q", "2")
            inner.rollback()
        database.outbox.add(session, "q", "3")
        session.commit()
    assert database.bodies() == ["1", "3"]


def test_a_scoped_session_is_a_session(database: Database) -> None:
    session = scoped_session(sessionmaker(database.engine))
    database.outbox.add(session, "q", "1")
    session.commit()
    session.remove()
    assert database.bodies() == ["1"]


def test_a_session_may_add_again_after_a_commit(database: Database) -> None:
    with Session(database.engine) as session:
        for number in range(3):
            database.outbox.add(session, "q", str(number))
            session.commit()
    assert database.bodies() == ["0", "1", "2"]


def test_rows_are_written_together_with_those_of_the_program(tmp_path: Path) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(Integer, primary_key=True)

    outbox = Outbox(Base.metadata, table="letters")
    engine = create_engine(f"sqlite:///{tmp_path}/program.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Order(id=1))
        outbox.add(session, "q", "1")
    with engine.connect() as connection:
        assert len(connection.execute(outbox.table.select()).all()) == 1
        assert inspect(connection).get_indexes("letters")[0]["name"] == "letters_waiting"
    engine.dispose()


def test_two_outboxes_of_one_table_are_an_error() -> None:
    metadata = MetaData()
    Outbox(metadata)
    Outbox(metadata, table="another")
    with pytest.raises(Exception, match="already defined"):
        Outbox(metadata)


def test_an_asyncio_session_and_connection_write_rows(database: Database) -> None:
    import asyncio

    async def use(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            database.outbox.add(session, "q", "1")
            await session.commit()
            database.outbox.add(session, "q", "no")
            await session.rollback()
        async with engine.begin() as connection:
            await connection.run_sync(database.outbox.add, "q", "2")
            await wrongly(connection)
        await engine.dispose()

    async def wrongly(connection: AsyncConnection) -> None:
        with pytest.raises(TypeError, match="run_sync"):
            database.outbox.add(connection, "q", "no")  # type: ignore[arg-type]

    asyncio.run(use(create_async_engine(database.url.replace("sqlite", "sqlite+aiosqlite"))))
    assert database.bodies() == ["1", "2"]


def test_anything_but_a_transaction_is_an_error(database: Database) -> None:
    with pytest.raises(TypeError, match="neither a session nor a connection"):
        database.outbox.add(database.engine, "q", "no")  # type: ignore[arg-type]


def test_a_job_that_no_node_accepts_writes_nothing(database: Database) -> None:
    with Session(database.engine) as session:
        with pytest.raises(ValueError, match="priority"):
            database.outbox.add(session, "q", "1", priority=9)
        session.commit()
    assert database.records() == []


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:////tmp/x.db", "sqlite"),
        ("sqlite+aiosqlite:////tmp/x.db", "sqlite"),
        ("postgresql://u:p@h/d", "postgresql+psycopg"),
        ("postgres://u:p@h/d", "postgresql+psycopg"),
        ("postgresql+asyncpg://h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg"),
    ],
)
def test_urls_of_asyncio_drivers_are_accepted(url: str, driver: str) -> None:
    engine = engine_for(url)
    assert engine.url.drivername == driver
    assert engine.url.password == ("p" if "u:p" in url else None)


def test_without_sqlalchemy_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import disque_integrations.outbox.django\n"
        "from disque_integrations.outbox import Outbox\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert how_to_install("outbox") in done.stderr.splitlines()[-1]


def test_without_sqlalchemy_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from disque_integrations.outbox.command import main\n"
        "sys.exit(main(['--database', 'sqlite://', '--nodes', '127.0.0.1:7711', '--once']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    [said] = done.stderr.splitlines()
    assert how_to_install("outbox") in said
