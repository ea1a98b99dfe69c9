"""The client for threads against a real node."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from disque_trio.client import AuthError, CallError, ConnectionLost, ReplyError, TooSlowError
from disque_trio.client import Client as AsyncClient
from disque_trio.client.sync import Client, HeldJob, connect
from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until


@pytest.fixture
def client(shared_node: LiveNode) -> Iterator[Client]:
    with connect(at(shared_node)) as client:
        yield client


def at(node: LiveNode) -> str:
    return f"{node.host}:{node.port}"


def test_a_job_is_added_fetched_and_acknowledged(client: Client) -> None:
    id = client.add("q", "body", retry=10)
    assert client.qlen("q") == 1
    [job] = client.get("q", timeout=HANG_SECONDS)
    assert (job.id, job.body) == (id, b"body")
    assert client.working(id) == 10
    assert client.ack(id, result="done") == 1
    [outcome] = client.wait(id, timeout=HANG_SECONDS)
    assert (outcome.state, outcome.result) == ("acked", b"done")
    assert client.get("q", nohang=True) == []
    with pytest.raises(ReplyError):
        client.execute("NOSUCH")


def test_the_public_methods_equal_those_of_the_asynchronous_client() -> None:
    assert public(AsyncClient) - public(Client) == {"run_source"}  # which runs in a loop
    assert public(Client) - public(AsyncClient) == {"close", "run"}
    for name in public(AsyncClient) - {"schedules", "run_source"}:
        assert getattr(Client, name).__doc__, name


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")} | {"schedules"}


def test_the_loop_acknowledges_and_requeues(client: Client) -> None:
    ids = client.add_many("q", ["0", "1", "2", "3"])
    seen = []
    with client.jobs("q") as jobs:
        for job in jobs:
            seen.append(job.id)
            if job.body == b"2":
                break
    assert seen == ids[:3]
    outcomes = client.wait(ids[:2], timeout=HANG_SECONDS)
    assert [outcome.state for outcome in outcomes] == ["acked"] * 2
    wait_until(lambda: client.qlen("q") == 2)
    again = client.jobs("q")
    job = next(again)
    assert job.id in ids[2:]
    again.stop()
    assert list(again) == []
    assert job.settled


def test_explicit_settling_brings_the_next_job_with_the_reply(client: Client) -> None:
    ids = client.add_many("q", ["0", "1"], retry=3600)
    with client.jobs("q") as jobs:
        job = next(jobs)
        job.goes_on = True
        assert job.goes_on
        job.ack()
        wait_until(lambda: client.qlen("q") == 0)  # it arrives before it is requested
        assert next(jobs).id == ids[1]


def test_an_abandoned_loop_requeues_its_job(client: Client) -> None:
    client.add("q", "x", retry=3600)
    for _ in client.jobs("q"):
        break
    wait_until(lambda: client.qlen("q") == 1)


@pytest.mark.load  # a starved process does not renew it in time
def test_a_body_that_blocks_keeps_its_job(client: Client) -> None:
    id = client.add("q", "x", retry=3)
    for job in client.jobs("q"):
        before = client.show(id)
        assert before is not None
        began = time.monotonic()
        while time.monotonic() - began < 4:
            pass  # keeps this thread busy
        assert client.qlen("q") == 0
        assert not job.lost
        job.ack()
        break
    assert client.get("q", nohang=True) == []


def test_many_threads_share_a_client(client: Client) -> None:
    def add(number: int) -> str:
        return client.add("q", str(number))

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(add, range(200)))
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def work() -> None:
        with client.jobs("q") as jobs:
            for job in jobs:
                seen.put(job.id)
                if job.body == b"stop":
                    job.ack()
                    break

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    found = [seen.get(timeout=HANG_SECONDS) for _ in ids]
    client.add_many("q", ["stop"] * len(threads))
    for thread in threads:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()
    assert sorted(found) == sorted(ids)


def test_scans_are_iterators(client: Client) -> None:
    ids = client.add_many("q", [str(number) for number in range(250)])
    assert "q" in client.qscan()
    assert set(client.jscan(queue="q")) == set(ids)
    assert {record["id"] for record in client.jscan_full(queue="q")} == set(ids)
    for _ in client.jscan(queue="q"):
        break  # the rest of the scan is closed
    with pytest.raises(ReplyError):
        list(client.jscan(states=["nosuch"]))


def until_interrupted(call: Callable[[], object], meanwhile: Callable[[], object]) -> None:
    """Run ``call``, and ``meanwhile`` in another thread; then interrupt the call by Ctrl-C."""
    main = threading.main_thread().ident
    over = threading.Event()
    assert main is not None

    def run() -> object:
        try:
            return meanwhile()
        finally:
            if not over.is_set():
                signal.pthread_kill(main, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            call()
            over.set()
            pytest.fail("it ended by itself")
        except KeyboardInterrupt:
            pass
        except Exception:
            over.set()
            raise
        done.result()


def test_a_call_is_served_in_threads(client: Client) -> None:
    names = set()

    def handler(job: HeldJob) -> bytes:
        names.add(threading.current_thread().name)
        if job.body == b"bad":
            raise ValueError("no")
        return job.body.upper()

    def calls() -> None:
        assert client.call("rpc", "abc", timeout=HANG_SECONDS) == b"ABC"
        with pytest.raises(CallError, match="ValueError: no"):
            client.call("rpc", "bad", timeout=HANG_SECONDS)

    until_interrupted(lambda: client.serve("rpc", handler), calls)
    assert names
    assert "disque-client" not in names
    with pytest.raises(TooSlowError):
        client.call("nobody", "x", timeout=0.1)


def test_handlers_run_in_threads_and_running_ones_may_finish(client: Client) -> None:
    both, go = threading.Barrier(3), threading.Event()

    def handler(job: HeldJob) -> None:
        both.wait(HANG_SECONDS)
        go.wait(HANG_SECONDS)

    ids = client.add_many("q", ["1", "2"])
    with ThreadPoolExecutor(1) as pool:

        def meanwhile() -> None:
            both.wait(HANG_SECONDS)
            # Not before the interrupt; otherwise, it would come too late.
            pool.submit(lambda: (broken.wait(HANG_SECONDS), go.set()))

        def work() -> None:
            try:
                client.work(handler, "q", concurrency=2)
            finally:
                assert go.is_set()

        broken = threading.Event()
        before = signal.getsignal(signal.SIGINT)

        def interrupted(*_: object) -> None:
            broken.set()
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupted)
        try:
            until_interrupted(work, meanwhile)
        finally:
            signal.signal(signal.SIGINT, before)
    assert [outcome.state for outcome in client.wait(ids, timeout=HANG_SECONDS)] == ["acked"] * 2
    client.add("q", "3")
    assert client.qlen("q") == 1


def test_a_handler_that_raises_requeues_its_job(client: Client) -> None:
    again = threading.Event()

    def handler(job: HeldJob) -> None:
        if job.nacks:
            again.set()
        else:
            raise ValueError

    client.add("q", "x", retry=3600)
    until_interrupted(lambda: client.work(handler, "q"), lambda: again.wait(HANG_SECONDS))
    assert again.is_set()


@pytest.mark.parametrize("waits", ["get", "jobs"])
def test_ctrl_c_ends_a_wait(client: Client, waits: str) -> None:
    wait = {"get": lambda: client.get("q"), "jobs": lambda: next(client.jobs("q"))}[waits]
    until_interrupted(wait, lambda: wait_until(lambda: waiting(client)))
    client.add("q", "x")
    assert client.qlen("q") == 1


def waiting(client: Client) -> bool:
    """Return whether a client waits for jobs of the queue."""
    clients = client.execute("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    return b"flags=b" in clients or b"cmd=consume" in clients


def test_closing_ends_calls_in_other_threads(shared_node: LiveNode) -> None:
    client = connect(at(shared_node))
    with connect(at(shared_node)) as other, ThreadPoolExecutor(1) as pool:
        done = pool.submit(client.get, "q")
        wait_until(lambda: waiting(other))
        other.add("held", "x", retry=3600)
        loop = client.jobs("held")
        next(loop)
        client.close()
        with pytest.raises(ConnectionLost):
            done.result(HANG_SECONDS)
        wait_until(lambda: other.qlen("held") == 1)
    for use in (client.hello, lambda: client.address, lambda: client.jobs("q"), lambda: next(loop)):
        with pytest.raises(ConnectionLost, match="closed"):
            use()
    loop.close()
    client.close()


def test_a_child_has_its_own_connection(shared_node: LiveNode) -> None:
    with connect(at(shared_node)) as client:
        client.add("q", "x", retry=3600)
        loop = client.jobs("q")
        job = next(loop)
        ids = client.jscan()
        next(ids)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                found = [client.add("child", "y")]
                for broken in (job.ack, lambda: next(loop), lambda: next(ids)):
                    try:
                        broken()
                    except ConnectionLost:
                        found.append("lost")
                client.close()
                os.write(writing, " ".join(found).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert len(pipe.read().split()) == 4
        os.waitpid(child, 0)
        assert client.qlen("child") == 1
        assert not job.lost
        job.ack()
        assert client.get("q", nohang=True) == []


def test_a_child_does_not_keep_the_connections_of_its_parent(disque_server: NodeFactory) -> None:
    node = disque_server()
    program = f"""
import os, sys, time
from disque_trio.client.sync import connect
client = connect({at(node)!r})
client.add("q", "x", retry=3600)
job = next(client.jobs("q"))
if os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read(1)
os._exit(1)  # without a word to the node
"""
    with (
        start_command(
            "python -c", program, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        connect(at(node)) as client,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.stdin.write(b"x")
        process.stdin.flush()
        wait_until(lambda: client.qlen("q") == 1)
        process.stdin.close()


def test_connecting_fails_as_with_the_asynchronous_client(
    disque_server: NodeFactory,
) -> None:
    with pytest.raises(ConnectionLost, match="no Disque node can be reached"):
        connect("127.0.0.1:1", retry_for=0)
    with pytest.raises(ValueError, match="no host"):
        connect(":1")
    node = disque_server("--requirepass", "secret")
    with pytest.raises(AuthError):
        connect(at(node))
    with connect(at(node), password="secret") as client:
        assert client.hello().node_id


def test_asynchronous_code_runs_in_the_loop(client: Client) -> None:
    async def both(behind: AsyncClient) -> list[int]:
        return [await behind.qlen("q"), await behind.qlen("q")]

    assert client.run(both) == [0, 0]


def test_a_program_that_does_not_close_its_client_ends(shared_node: LiveNode) -> None:
    program = f"""
from disque_trio.client.sync import connect
client = connect({at(shared_node)!r})
client.add("q", "x", retry=3600)
job = next(client.jobs("q"))
"""
    run_command("python -c", program, check=True)
    with connect(at(shared_node)) as client:
        wait_until(lambda: client.qlen("q") == 1)


def test_loops_of_several_threads_share_a_connection(client: Client) -> None:
    ids = set(client.add_many("q", ["0", "1"]))
    first, second = client.loops("q", count=2)
    with first, second:
        taken = {next(first).id, next(second).id}
        assert client.info("clients")["consuming_clients"] == "1"
        for loop in (first, second):
            loop.stop()
            assert next(loop, None) is None
    assert taken == ids
    assert client.qlen("q") == 0
