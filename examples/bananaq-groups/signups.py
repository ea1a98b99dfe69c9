"""Signups for two consumer groups, each of which reads all of them.

python examples/bananaq-groups/signups.py add NAME ...     adds an event for each name
python examples/bananaq-groups/signups.py read GROUP N     handles N events for a group
"""

import sys

import trio

from disque_bananaq.client import connect, consumer

HOST, PORT = "127.0.0.1", 4777
KEPT = 3600  # s for which an event can be read


async def add(names: list[str]) -> None:
    async with connect(HOST, PORT) as client:
        for name in names:
            await client.add("signups", name, expire=KEPT)


async def read(group: str, count: int) -> None:
    """An event goes to one consumer in each group, and to another if that one does not finish."""
    async with consumer("signups", group=group, server=HOST, port=PORT) as events:
        async for event in events:
            print(f"{group}: {event.body.decode()}", flush=True)
            count -= 1
            if count == 0:
                await events.stop()  # unlike break, lets this event be acknowledged


if __name__ == "__main__":
    if sys.argv[1] == "add":
        trio.run(add, sys.argv[2:])
    else:
        trio.run(read, sys.argv[2], int(sys.argv[3]))
