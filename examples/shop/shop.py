"""What the workers of the shop do. ``process`` is the way of an order, from job to job."""

import csv
import io
import random
import time
import zlib
from typing import Any

from books import Charge, Order, Sent, begin
from sqlalchemy import func, select

from disque_trio.tasks import Bound, Disque, chain, current_job, group

app = Disque(name="shop")  # where DISQUE_URL says, or else at disque://127.0.0.1:7711


def process(order: Order) -> Bound[Any]:
    """Each step is a job that gets the result of the one before. A group is done when all are."""
    return chain(
        [
            charge.bind(order.id),
            fulfil.bind(order.id),
            group([thumbnail.bind(width) for width in (16, 32, 64)]),
            done.bind(order.id),
            group([mail.bind(), hook.bind(order.customer)]),
        ]
    )


@app.task(queue="orders", retries=20, backoff=(0.2, 10))
def charge(number: int) -> str:
    """May run twice, as any task may, but charges once: the bank knows the order's number."""
    with begin() as session:
        order = session.get_one(Order, number)
        if session.get(Charge, number) is None:
            session.add(Charge(number=number, what=order.what))
    if random.random() < 0.2:
        raise TimeoutError("no answer from the bank")  # which has charged, or has not
    return order.what


@app.task(queue="orders")
def fulfil(what: str, number: int) -> str:
    with begin() as session:
        session.get_one(Order, number).state = "packed"
    return what


@app.task(queue="images", timeout=30)
def thumbnail(what: str, width: int) -> int:
    """Needs the CPU, so its queue has a worker of its own, with a process for each CPU."""
    step = 256 // width
    picture = [[ord(what[x * y % len(what)]) for x in range(256)] for y in range(256)]
    places = range(0, 256, step)
    pixels = [
        sum(sum(row[x : x + step]) for row in picture[y : y + step]) for y in places for x in places
    ]
    return len(zlib.compress(bytes(pixel // step**2 for pixel in pixels)))


@app.task(queue="orders")
def done(thumbnails: list[int], number: int) -> int:
    with begin() as session:
        session.get_one(Order, number).state = "done"
    return number


@app.task(queue="mail", rate="100/s", backoff=(1, 600))
def mail(number: int) -> None:
    send("mail", number)


@app.task(
    queue="hooks",
    retries=10,
    backoff=(1, 3600),
    group_by=lambda number, customer: customer,
    groups="fifo",
    group_rate="5/s",
)
def hook(number: int, customer: str) -> None:
    """One by one for each customer, and at most five a second, however many workers there are."""
    send("hook", number)


def send(kind: str, number: int) -> None:
    """Stands for a mail server, and for the servers of the customers."""
    began = time.time()
    time.sleep(0.02)
    with begin() as session:
        session.add(Sent(kind=kind, number=number, began=began))


@app.task(queue="office", cron="@daily")
def report() -> str:
    with begin() as session:
        counts = session.execute(select(Order.state, func.count()).group_by(Order.state))
        text = ", ".join(f"{count} {state}" for state, count in sorted(counts.tuples()))
    print(f"orders: {text or 'none'}", flush=True)
    return text


@app.task(queue="quotes", retries=0, ttl=10)
def quote(what: str) -> int:
    """Somebody waits for the price, but not for long."""
    return sum(map(ord, what)) % 90 + 10


@app.task(queue="office", timeout=3600, results="store")
def export() -> str:
    """A long task, which says how far it is, and looks whether somebody has cancelled its job. Its
    result is kept for a day."""
    job, table = current_job(), io.StringIO()
    with begin() as session:
        orders = session.scalars(select(Order)).all()
    for number, order in enumerate(orders, 1):
        csv.writer(table).writerow([order.id, order.customer, order.what, order.state])
        time.sleep(0.01)
        if job is not None:
            job.progress(number / len(orders), f"{number} of {len(orders)} orders")
            if job.lost:
                return ""
    return table.getvalue()
