"""The database of the shop. ``python books.py`` creates its tables."""

import os
import time

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from disque_integrations.outbox import Outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    what: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


class Charge(Base):
    """The book of the bank, which takes an order once."""

    __tablename__ = "charges"

    number: Mapped[int] = mapped_column(primary_key=True)  # of the order
    what: Mapped[str]


class Sent(Base):
    """The book of what has left the house, and which process sent it."""

    __tablename__ = "sent"

    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int]
    kind: Mapped[str]
    began: Mapped[float]
    ended: Mapped[float] = mapped_column(default=time.time)
    process: Mapped[int] = mapped_column(default=os.getpid)


outbox = Outbox(Base.metadata)
engine = create_engine(
    os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"), connect_args={"timeout": 60}
)
begin = sessionmaker(engine, class_=Session, expire_on_commit=False).begin

if __name__ == "__main__":
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # readers do not wait for writers
    Base.metadata.create_all(engine)
