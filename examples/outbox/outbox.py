"""Takes orders. Each is a row in the program's table and a job: both or neither.

python examples/outbox/outbox.py 3 apples
"""

import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from disque_integrations.outbox import Outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]
    what: Mapped[str]


outbox = Outbox(Base.metadata)


def main(count: int, what: str) -> None:
    engine = create_engine("sqlite:///shop.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Order(count=count, what=what))
        outbox.add(session, "orders", f"{count} {what}", retry=60)
        if count > 100:
            raise SystemExit("out of stock: no order, and no job")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
