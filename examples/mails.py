"""Mails that are all sent, whatever breaks: the program of docs/jobs.md.

python examples/mails.py add COUNT        adds mails, each of them twice
python examples/mails.py send             sends them; every third mail kills it
python examples/mails.py send --mended    sends them all
"""

import os
import signal
import sys

import trio

from disque_trio.client import Client, NoReplError, NoUniqueError, connect

NODES = ["127.0.0.1:7711", "127.0.0.1:7712", "127.0.0.1:7713"]


async def add(count: int) -> None:
    """Add each mail at one node, and again at another, as if there had been no answer."""
    async with (
        connect(NODES) as one,
        connect([node for node in NODES if node != one.address]) as another,
    ):
        for number in range(1, count + 1):
            ids = [await add_one(client, f"mail {number}") for client in (one, another)]
            print(*ids, flush=True)


async def add_one(client: Client, mail: str) -> str:
    """Add a mail, unless there was one with its key within the last hour; -> its job's id."""
    while True:
        try:
            return await client.add("mails", mail, unique=mail, unique_for=3600)
        except (NoReplError, NoUniqueError):  # too few nodes agree just now: say it again
            await trio.sleep(0.1)


async def send(mended: bool) -> None:
    """Send mails until somebody ends the program."""
    async with connect(NODES) as client:
        async for job in client.jobs("mails"):
            mail = job.body.decode()
            if int(mail.split()[1]) % 3 == 0 and not mended:
                os.kill(os.getpid(), signal.SIGKILL)  # no clean-up, no goodbye
            print("sent", mail, "as", job.id, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "add":
        trio.run(add, int(sys.argv[2]))
    else:
        trio.run(send, "--mended" in sys.argv)
