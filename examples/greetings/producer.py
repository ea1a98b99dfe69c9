import sys

import trio

from disque_trio.client import connect


async def main() -> None:
    async with connect(["127.0.0.1:7711"]) as client:
        for name in sys.argv[1:] or ["world"]:
            print(await client.add("greetings", name))


trio.run(main)
