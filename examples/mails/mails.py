"""Mails that are all sent, whatever breaks: the program of docs/jobs.md.

python examples/mails/mails.py add COUNT        adds mails, each of them twice
python examples/mails/mails.py send             sends them; every third mail kills it
python examples/mails/mails.py send --fixed    sends them all
"""

import os
import signal
import sys

import trio

from disque_trio.client import Client, NoReplError, NoUniqueError, connect

NODES = ["127.0.0.1:7711", "127.0.0.1:7712", "127.0.0.1:7713"]


async def add(count: int) -> None:
    """Add each mail at one node, and again at another, as if the first had not answered."""
    async with (
        connect(NODES) as one,
        connect([node for node in NODES if node != one.address]) as another,
    ):
        for number in range(1, count + 1):
            ids = [await add_one(client, f"mail {number}") for client in (one, another)]
            print(*ids, flush=True)


async def add_one(client: Client, mail: str) -> str:
    """Add a mail, unless one with its key was added in the last hour. Returns the job's id."""
    while True:
        try:
            return await client.add("mails", mail, unique=mail, unique_for=3600)
        except (NoReplError, NoUniqueError):  # too few nodes agree now: try again
            await trio.sleep(0.1)


async def send(fixed: bool) -> None:
    """Send mails until the program is stopped."""
    async with connect(NODES) as client:
        async for job in client.jobs("mails"):
            mail = job.body.decode()
            if int(mail.split()[1]) % 3 == 0 and not fixed:
                os.kill(os.getpid(), signal.SIGKILL)  # no cleanup
            print("sent", mail, "as", job.id, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "add":
        trio.run(add, int(sys.argv[2]))
    else:
        trio.run(send, "--fixed" in sys.argv)
