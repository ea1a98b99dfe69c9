import asyncio

from disque_trio.client import HeldJob, connect


async def greet(job: HeldJob) -> None:
    await asyncio.sleep(0.1)  # whatever takes time
    print("hello", job.body.decode(), flush=True)


async def main() -> None:
    async with connect(["127.0.0.1:7711"]) as client, asyncio.TaskGroup() as group:
        worker = group.create_task(client.work(greet, "greetings", concurrency=4))
        await client.add_many("greetings", ["anna", "bert"])
        print(await client.qlen("greetings"), "wait", flush=True)
        try:
            async with asyncio.timeout(5):
                await client.call("nobody serves this", "hello", timeout=0.5)
        except TimeoutError as error:
            print("no answer:", error, flush=True)
        worker.cancel()  # its unfinished jobs are requeued


asyncio.run(main())
