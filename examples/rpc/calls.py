"""Remote calls: a server that counts words, and its client.

python examples/rpc/calls.py serve             answers until it is stopped
python examples/rpc/calls.py call TEXT ...     asks about all texts at the same time
"""

import sys

import trio

from disque_trio.client import CallError, HeldJob, connect

NODES = ["127.0.0.1:7711"]


async def count(job: HeldJob) -> str:
    """The handler: its result is the reply, and its exceptions are raised in the caller."""
    words = job.body.decode().split()
    if not words:
        raise ValueError("there are no words")
    return str(len(words))


async def serve() -> None:
    async with connect(NODES) as client:
        await client.serve("words", count, concurrency=4)


async def ask(texts: list[str]) -> None:
    async with connect(NODES) as client, trio.open_nursery() as nursery:

        async def ask_one(text: str) -> None:
            try:
                answer = (await client.call("words", text, timeout=10)).decode()
            except (CallError, trio.TooSlowError) as error:
                answer = repr(error)
            print(f"{text}: {answer}", flush=True)

        for text in texts:
            nursery.start_soon(ask_one, text)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        trio.run(serve)
    else:
        trio.run(ask, sys.argv[2:])
