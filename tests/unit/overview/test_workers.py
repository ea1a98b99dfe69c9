"""Which clients are workers, and the jobs that they have."""

from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import Client
from disque_trio.overview.workers import workers

A, B = "10.0.0.1:7711", "10.0.0.2:7711"


def client(
    id: int,
    name: str,
    command: str,
    node: str = A,
    *,
    address: str = "",
    age: int = 10,
    idle: int = 1,
    flags: str = "N",
    user: str = "default",
) -> Client:
    address = address or f"10.9.0.1:{id}"
    return Client(node, id, address, name, age, idle, flags, 100, command, user)


def job(id: int, taker: int, since: int | None = None, queue: str = "q") -> ShownJob:
    """A job that client ``taker`` has for ``since`` ms."""
    return ShownJob(id=f"D-{id}", queue=queue, client=taker, client_since=since)


def test_connections_of_the_same_name_are_one_process_with_the_jobs_of_all() -> None:
    first, second, third = workers(
        [
            client(1, "w:host:5", "getjob", age=9, idle=4, user="a"),
            client(2, "", "ping"),
            client(1, "w:host:5", "ping", B, age=7, idle=2, flags="b", user="b"),
            client(3, "w:host:6", "getjob", B),
            client(4, "", "addjob"),
        ],
        [
            (A, job(3, 1, 100)),
            (B, job(1, 1, 9_000, "mail")),
            (A, job(2, 2)),
            (A, job(4, 77, 50)),
        ],
    )
    assert (second.name, len(second.clients), second.nodes) == ("w:host:5", 2, [A, B])
    assert [job.id for job in second.jobs] == ["D-1", "D-3"]
    assert (second.queues, second.users, second.longest) == (["mail", "q"], ["a", "b"], 9.0)
    assert (second.age, second.idle, second.waiting) == (9, 2, 1)
    # Its last command is no worker's, but it has a job.
    assert (first.name, first.key, first.longest) == ("10.9.0.1:2", f"{A} 2", None)
    assert (third.name, third.jobs, third.longest) == ("w:host:6", [], None)


def test_connections_without_a_name_are_workers_of_their_own_even_from_one_address() -> None:
    # All clients of a Unix socket have its path as their address.
    socket = "/run/disque.sock:0"
    found = workers(
        [client(id, "", "getjob", node, address=socket) for node in (A, B) for id in (1, 2)],
        [(B, job(1, 2))],
    )
    assert [row.name for row in found] == [socket] * 4
    assert [len(row.jobs) for row in found] == [0, 0, 0, 1]
