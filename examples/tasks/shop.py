"""A small app with tasks: thumbnails, mails that sometimes fail, and a report.

Add some jobs in one terminal, and run a worker in another:

    disque-worker examples.tasks.shop:app
    python -m examples.tasks.shop

The environment variable DISQUE_URL names the nodes.
"""

import zlib

from disque_trio.tasks import Disque, Reject, current_job

app = Disque(name="shop")


@app.task(queue="images", timeout=30)
def shrink(picture: str, width: int) -> dict[str, object]:
    """CPU-bound work: not ``async``, so it runs in a thread of the worker."""
    data = zlib.compress(picture.encode() * width)
    return {"picture": picture, "width": width, "bytes": len(data)}


@app.task(queue="mail", retries=5, backoff=(0.1, 60), unique=True, unique_for=3600, rate="50/s")
async def send_mail(to: str, subject: str) -> str:
    """Work that mostly waits. The same mail is added at most once an hour."""
    if "@" not in to:
        raise Reject(f"no address: {to!r}")
    job = current_job()
    if to.startswith("busy") and job is not None and job.attempt < 3:
        raise ConnectionError("the mail server is busy")  # retried
    return f"to {to}: {subject}"


@app.task(queue="images")
def describe(thumbnail: dict[str, object], what: str) -> str:
    """The second step of a chain."""
    return f"{what}: {thumbnail['width']} wide"


@app.task(queue="images")
def report(thumbnails: list[dict[str, object]]) -> str:
    """Runs after a group, and gets the results of all its members."""
    return f"{len(thumbnails)} thumbnails of {sorted({str(one['picture']) for one in thumbnails})}"


@app.task(queue="mail", cron="0 7 * * mon", tz="Europe/Berlin")
def weekly() -> None:
    """Added by the nodes, every Monday at seven."""


def main() -> None:
    with app:
        app.setup()
        mail = send_mail.add("ann@example.org", "hello")
        print(mail.get(timeout=60))
        print(send_mail.add("busy@example.org", "hello").get(timeout=60))
        # The thumbnail is made first; its address becomes the first argument of the next task.
        print(shrink.then(describe.bind("cat")).add("cat.png", 32).get(timeout=60))
        sizes = [shrink.bind("dog.png", width) for width in (16, 32, 64)]
        print(app.group(sizes, then=report.bind()).get(timeout=60))


if __name__ == "__main__":
    main()
