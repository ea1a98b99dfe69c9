"""Programs on pages, and parts of programs, run as written."""

import ast
import inspect
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from disque_trio.client import Client, HeldJob, connect
from disque_trio.client.sync import connect as connect_sync
from disque_trio.tasks import Disque, Reject, Retry
from tests.support import PYTHONPATH
from tests.support.doc_blocks import block, blocks, is_python
from tests.support.documented import ID, IN_PLACE, Typist, shape
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until

pytestmark = pytest.mark.live


@contextmanager
def running(output: Path, *words: str, **environment: str) -> Iterator[Callable[[str], None]]:
    """Run a program in a separate process, with these arguments for Python. Yields a function that
    waits until it has printed a line."""
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-u", *words],
            env={**os.environ, "PYTHONPATH": f"{PYTHONPATH}:{output.parent}", **environment},
            stdout=out,
            stderr=out,
        )
    try:
        yield lambda line: wait_until(lambda: line in output.read_text().splitlines())
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


async def run(text: str, names: dict[str, Any]) -> None:
    """Run a part of a program, which may use await, with these names defined."""
    code = compile(text, "part", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = eval(code, names)
    if inspect.iscoroutine(awaited):
        await awaited


# ---- docs/client.md -----------------------------------------------------------------------------


def at(node: LiveNode, text: str) -> str:
    return text.replace("7711", str(node.port))


async def test_a_producer_and_workers_of_the_client(shared_node: LiveNode, tmp_path: Path) -> None:
    page = "docs/client.md"
    worker = block(page, "import trio").text
    producer = block(page, "async with connect([").text
    threads = block(page, "from disque_trio.client.sync import connect").text
    with running(tmp_path / "worker", "-c", at(shared_node, worker)) as printed:
        await run(at(shared_node, producer), {"connect": connect})
        await trio.to_thread.run_sync(printed, "hello world")
    with running(tmp_path / "threads", "-c", at(shared_node, threads)) as printed:
        await trio.to_thread.run_sync(printed, "hello world")


async def done(client: Client, queue: str, body: str) -> None:
    """Add a job and wait until it is acknowledged."""
    id = await client.add(queue, body)
    [outcome] = await client.wait(id, timeout=HANG_SECONDS)
    assert outcome.state == "acked"


async def test_parts_of_programs_with_the_client(shared_node: LiveNode) -> None:
    page = "docs/client.md"
    shown: list[object] = []
    async with connect([f"127.0.0.1:{shared_node.port}"]) as client:
        names: dict[str, Any] = {"client": client, "HeldJob": HeldJob, "url": "http://a"}
        names["show"] = shown.append
        for loop in block(page, "async with client.jobs").text.split("\n\n"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, loop, names)
                await done(client, "mail", "body")
                nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, block(page, "async def handle").text, names)
            await done(client, "sms", "body")
            nursery.cancel_scope.cancel()
        await run(block(page, "await client.set_policy").text, names)
        policy = await client.policy("mail")
        assert policy is not None
        assert (policy.attempts, policy.dead) == (5, "mail.dead")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, block(page, "id = await client.add").text, names)
            [job] = await client.get("thumbnails", timeout=HANG_SECONDS)
            await client.ack(job.id, result="small")
        assert shown == [b"small"]
        serve, call = block(page, "async def count").text.split("\n\nanswer")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, serve, names)
            await run(f"answer{call}", names)
            nursery.cancel_scope.cancel()
        assert names["answer"] == b"2"
        await client.delete_policy("mail")


# ---- pressure.md --------------------------------------------------------------------------------


def test_programs_with_pressure(redis_port: str, tmp_path: Path) -> None:
    page = "packages/pressure/docs/pressure.md"
    environment = {"REDIS_PORT": redis_port}
    with running(
        tmp_path / "lines", "-c", block(page, "import trio").text, **environment
    ) as printed:
        printed("4999")
    script = f"export REDIS_PORT={redis_port}\n{IN_PLACE}  pressure delete lines 2> log || true\n"
    script += "  pressure create lines\n  seq 3 | pressure put lines --close\n"
    Typist(tmp_path, {"/tmp/disque": str(tmp_path / "disque")}).type(script)
    threads = block(page, "from disque_pressure.sync").text
    with running(tmp_path / "threads", "-c", threads, **environment) as printed:
        printed("3")
    names: dict[str, Any] = {}
    exec(block(page, "import ssl").text, names)
    assert repr(names["client"])


# ---- docs/tasks.md ------------------------------------------------------------------------------


def test_tasks_are_added_by_programs_and_by_hand(shared_node: LiveNode, tmp_path: Path) -> None:
    page = "docs/tasks.md"
    (tmp_path / "shop.py").write_text(at(shared_node, block(page, "# shop.py").text))
    in_threads = block(page, "send_mail(").text
    in_trio = block(page, "handle = await").text.replace("\n", "\n    ")
    program = "import trio\nfrom shop import send_mail\n" + in_threads
    program += f"\nasync def main():\n    {in_trio}\ntrio.run(main)\n"
    told = block("docs/tasks-reference.md", "$ redis-cli").typed()
    worker = ("-m", "disque_trio.worker.command", "shop:app", "--app-dir", str(tmp_path))
    with running(tmp_path / "worker", *worker):
        with running(output := tmp_path / "program", "-c", program):
            wait_until(lambda: output.read_text().count("sent to ann@example.org\n") == 2)
        id = ""
        for command, shown in told:
            typed = at(shared_node, re.sub(ID, id, command))
            done = subprocess.run(typed, shell=True, capture_output=True, text=True, check=True)
            assert shape(done.stdout.strip()) == shape("\n".join(shown))
            id = re.findall(ID, done.stdout)[0]


def test_parts_of_programs_with_tasks(shared_node: LiveNode) -> None:
    page = "docs/tasks.md"
    names: dict[str, Any] = {"__name__": "shop", "Disque": Disque, "pickle": pickle}
    exec(block(page, "# shop.py").text, names)
    helpers = """
@app.task
def resize(name: str, size: int = 9) -> str: return f"{name} {size}"
@app.task
def upload(image: str, where: str) -> str: return f"{image} in {where}"
@app.task
def report(images: list[str], about: str) -> str: return f"{about}: {len(images)}"
@app.task
def check(what: str) -> None: pass
def order(number: int) -> None: send_mail.add("ann@example.org", f"order {number}")
"""
    exec(helpers, names)
    exec(block(page, "@app.task(unique=True)").text, names)
    with names["app"].testing() as jobs:
        exec(block(page, "(resize.bind").text, names)
        exec(block(page, "app.group").text, names)
        assert {job.task.rpartition(".")[2] for job in jobs.added} >= {"resize", "upload", "report"}
        names["rebuild"].add("a")
        names["ship"].add(1, by="sea")
    exec(block(page, "def test_orders_are_confirmed").text, names)
    names["test_orders_are_confirmed"]()
    exec(block("docs/tasks-reference.md", "class Pickle").text, names)
    assert names["Pickle"].loads(names["Pickle"].dumps({1})) == {1}
    retry, reject = block(page, "from disque_trio.tasks import Reject, Retry").text.split(
        "\nraise Rej"
    )
    with pytest.raises(Retry):
        exec(retry, names)
    with pytest.raises(Reject):
        exec(f"raise Rej{reject}", names)
    exec(at(shared_node, block(page, 'app = Disque("disque://127.0.0.1:7711", name=').text), names)
    with names["app"] as app:
        app.setup()
        with connect_sync(f"127.0.0.1:{shared_node.port}") as client:
            found = sorted(schedule.name for schedule in client.schedules.all())
            for name in found:
                client.schedules.delete(name)
    assert found == ["shop:pulse", "shop:shop.weekly"]


# ---- bananaq.md ---------------------------------------------------------------------------------

EVENT = r"\d{16}_\d{16}"


def test_events_of_bananaq(tmp_path: Path) -> None:
    page, port = "packages/bananaq/docs/bananaq.md", str(free_port())
    daemon = ("-m", "disque_bananaq.main", "--listen-addr", f"127.0.0.1:{port}")
    with running(tmp_path / "bananaq", *daemon, "--dir", str(tmp_path)):

        def ask(command: str) -> str:
            words = ["redis-cli", "--no-raw", "-p", port, *shlex.split(command, comments=True)]
            return subprocess.run(words, capture_output=True, text=True).stdout.rstrip()

        wait_until(lambda: ask("PING") == "PONG")
        ids: dict[str, str] = {}
        for one in blocks(page):
            if one.titles[-1] != "Five minutes" or is_python(one):
                continue
            for part in re.split(r"^> ", one.text, flags=re.MULTILINE)[1:]:
                command, *shown = part.rstrip().split("\n")
                answer = ask(re.sub(EVENT, lambda id: ids[id[0]], command))
                for told, found in zip(
                    re.findall(EVENT, "\n".join(shown)), re.findall(EVENT, answer), strict=True
                ):
                    assert ids.setdefault(told, found) == found
                assert re.sub(EVENT, "ID", answer).split() == (
                    re.sub(EVENT, "ID", "\n".join(shown)).split()
                )
        assert len(ids) == 2
        consumer = block(page, "import trio").text.replace('"mail")', f'"mail", port={port})')
        ask("QADD signups 3600 cid")
        with running(tmp_path / "consumer", "-c", consumer) as printed:
            printed("welcome cid")
