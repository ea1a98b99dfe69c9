import trio

from disque_trio.client import connect


async def main() -> None:
    async with connect(["127.0.0.1:7711"]) as client:
        async for job in client.jobs("greetings"):
            print("hello", job.body.decode(), flush=True)


trio.run(main)
