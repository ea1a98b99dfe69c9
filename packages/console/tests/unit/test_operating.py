"""How the pages for clients, workers, schedules, settings and slow commands read replies."""

from collections.abc import Sequence

import pytest

from disque_console.model import bananaq, bindings
from disque_console.model import workers as found_workers
from disque_console.model.action import Form, Where
from disque_console.model.actions import ACTIONS
from disque_console.model.clients import KEYS, find
from disque_console.model.in_hand import read_held
from disque_console.model.paging import SIZE, page_of
from disque_console.model.roles import Role
from disque_console.model.schedules import merged, search
from disque_console.model.settings import is_secret, read, sections
from disque_console.model.slowlog import WORD, WORDS, read_slow, read_stalls
from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import read_clients
from disque_trio.overview.names import quoted
from disque_trio.overview.workers import workers
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ProtocolError

A, B = "10.0.0.1:7711", "10.0.0.2:7711"


def commands(action: str, **fields: str) -> list[tuple[object, ...]]:
    form = Form({name: [value] for name, value in fields.items()})
    return [order.command for order in ACTIONS[action].make(form)]


# ---- pages ---------------------------------------------------------------------------------------


def test_a_page_behind_the_last_is_the_last() -> None:
    found = list(range(SIZE + 3))
    assert page_of(found, 1).rows == found[:SIZE]
    last = page_of(found, 99)
    assert (last.number, last.first, last.last, last.count) == (2, SIZE + 1, SIZE + 3, SIZE + 3)
    empty = page_of([], 5)
    assert (empty.number, empty.pages, empty.first, empty.last) == (1, 1, 0, 0)


# ---- clients -------------------------------------------------------------------------------------


def client_line(id: int, **fields: object) -> str:
    given = {
        "addr": f"10.9.0.{id}:1000",
        "laddr": A,
        "fd": 9,
        "name": "",
        "age": 0,
        "idle": 0,
        "flags": "N",
        "qbuf": 0,
        "omem": 0,
        "tot-mem": 0,
        "events": "r",
        "cmd": "ping",
        "user": "default",
        "resp": 2,
        "lib-name": "",
        "lib-ver": "",
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    return f"id={id} " + " ".join(f"{name}={value}" for name, value in given.items())


CLIENTS = read_clients(
    A,
    "\n".join(
        [
            client_line(1, name="mailer-1", age=50, idle=3, cmd="getjob", flags="b"),
            client_line(2, user="ann", age=9, tot_mem=4096, cmd="client|list"),
            client_line(3, addr="/run/a b.sock:0", age=70, idle=9, cmd="ackjob"),
            "nonsense id=4 addr=",
            "",
        ]
    ),
)


def test_the_lines_of_clients_are_read_and_nonsense_is_left_out() -> None:
    first, second, third = CLIENTS
    assert (first.node, first.id, first.name, first.address) == (A, 1, "mailer-1", "10.9.0.1:1000")
    assert (first.age, first.idle, first.blocked, first.works) == (50, 3, True, True)
    assert (second.user, second.memory, second.command, second.works) == (
        "ann",
        4096,
        "client|list",
        False,
    )
    assert third.address == "/run/a b.sock:0"


def test_a_client_that_gets_jobs_pushed_is_a_worker() -> None:
    # Such a worker keeps sending how many more jobs it can take.
    [client] = read_clients(A, client_line(1, cmd="credit"))
    assert client.works


def test_clients_are_searched_and_sorted() -> None:
    assert [client.id for client in find(CLIENTS, "", "age", True)] == [3, 1, 2]
    for text, ids in (("MAIL", [1]), ("ann", [2]), ("9.0.2", [2]), ("list", [2]), ("none", [])):
        assert [client.id for client in find(CLIENTS, text, "node", False)] == ids
    for key in KEYS:
        assert len(find(CLIENTS, "", key, False)) == 3


def test_of_workers_those_that_run_a_job_for_longest_come_first_then_those_that_wait() -> None:
    clients = [
        *CLIENTS,
        *read_clients(A, client_line(5, name="w:host:5", idle=4, cmd="getjob")),
        *read_clients(B, client_line(6, name="w:host:6", cmd="ping")),
        *read_clients(B, client_line(7, name="w:host:5", idle=9, cmd="ping", user="bob")),
        *read_clients(B, client_line(8, name="w:host:8", cmd="ping")),
    ]
    running = [
        (B, ShownJob(id="D-1", client=7, client_since=5_000)),
        (B, ShownJob(id="D-2", client=6, client_since=9_000)),
        (B, ShownJob(id="D-3", client=8)),
    ]
    rows = workers(clients, running)

    def names(search: str) -> list[str]:
        return [row.name for row in found_workers.find(rows, search)]

    last = "/run/a b.sock:0"
    assert names("") == ["w:host:6", "w:host:5", "w:host:8", "mailer-1", last]
    assert names("MAIL") == ["mailer-1"]
    assert names("bob") == ["w:host:5"]
    assert names("10.0.0.2") == ["w:host:6", "w:host:5", "w:host:8"]
    assert names("b.sock") == [last]
    assert names("none") == []


def test_a_client_is_disconnected_on_its_node() -> None:
    form = Form({"node": [quoted(A)], "id": ["7"], "who": ["x"]})
    [order] = ACTIONS["kill"].make(form)
    assert (order.command, order.where) == (("CLIENT", "KILL", "ID", "7"), A)
    assert ACTIONS["kill"].asks
    assert "was already gone" in ACTIONS["kill"].says(form, [0])
    for id in ("", "x", "0"):
        with pytest.raises(ValueError, match=r".+"):
            commands("kill", node=quoted(A), id=id)


# ---- jobs in hand --------------------------------------------------------------------------------


def job(id: str, within: int, retry: int = 60, state: bytes = b"active") -> list[Reply]:
    return [
        *(b"id", id.encode(), b"state", state, b"retry", retry, b"ctime", 100 * 10**9),
        *(b"nacks", 1, b"additional-deliveries", 2, b"next-requeue-within", within),
    ]


def taken(id: str, within: int, since: int, client: int = 7) -> list[Reply]:
    return [*job(id, within), b"client", client, b"client-since", since]


def test_a_job_is_in_hand_for_as_long_as_the_node_says_that_delivered_it() -> None:
    # It waits in its queue before that, while its retry time already runs.
    here: list[Reply] = [taken("one", 50_000, 1000), taken("two", 9000, 2500), None]
    two, one = read_held([(A, here), (B, [job("one", 3000)])], 200.0)
    assert (two.id, two.since, two.left) == ("two", 2.5, 9.0)
    assert (one.id, one.since, one.left) == ("one", 1.0, 50.0)
    assert (one.nodes, one.age, one.returns) == ((A, B), 100.0, 3)


def test_a_node_of_an_older_release_does_not_say_for_how_long() -> None:
    [held] = read_held([(A, [job("one", 30_000)]), (B, [job("one", 50_000)])], 200.0)
    assert (held.since, held.left) == (None, 50.0)


def test_the_node_that_delivered_a_job_says_who_has_it() -> None:
    held = read_held(
        [(A, [taken("one", 50_000, 9)]), (B, [job("one", 30_000), job("two", 1)])], 200.0
    )
    assert [(job.id, job.taken_on, job.taker) for job in held if job.taker] == [("one", A, 7)]
    [line] = read_clients(A, client_line(7))
    by_id = {(line.node, line.id): line}
    assert [job.holder(by_id) is line for job in held] == [job.id == "one" for job in held]


def test_of_a_job_that_is_never_queued_again_nobody_knows_since_when() -> None:
    [held] = read_held([(A, [job("one", 0, retry=0), job("acked", 5, state=b"acked")])], 200.0)
    assert (held.since, held.left) == (None, None)


# ---- schedules -----------------------------------------------------------------------------------


def plan(name: str, done: int = 0, problem: str = "") -> list[Reply]:
    found: list[Reply] = [
        *(b"name", name.encode(), b"times", b"@hourly", b"tz", b"UTC", b"catchup", 0),
        *(b"paused", 0, b"queue", b"q." + name.encode(), b"options", [b"RETRY", b"a b"]),
        *(b"done-until", done, b"next", None if done == 9 else done + 1),
    ]
    return [*found, b"problem", problem.encode()] if problem else found


def test_schedules_of_nodes_are_merged_with_each_ones_problem() -> None:
    rows = merged([(A, [plan("b", 5), plan("a")]), (B, [plan("b", 7, "NOREPL"), None])])
    assert list(rows) == ["a", "b"]
    assert (rows["b"].schedule.done_until, rows["b"].problems) == (7, {B: "NOREPL"})
    assert rows["a"].options == 'RETRY "a b"'
    assert [row.schedule.name for row in search(rows, "Q.B")] == ["b"]
    with pytest.raises(ProtocolError):
        merged([(A, b"OK")])


def test_bindings_of_nodes_are_merged_with_each_ones_problem() -> None:
    news = [b"topic", b"news", b"queue", b"q", b"user", b"eve"]
    rows = bindings.merged(
        [
            (A, [[b"topic", b"b", b"queue", b"q"], [*news, b"problem", b"user eve is off"]]),
            (B, [news]),
        ]
    )
    assert [(row.topic, row.user, row.problems) for row in rows] == [
        ("b", "", {}),
        ("news", "eve", {A: "user eve is off"}),
    ]
    with pytest.raises(ProtocolError):
        bindings.merged([(A, b"OK")])


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"a\nb", "a\nb"), ("ü".encode(), "ü"), (b"a\rb", None), (b"\xff", None), (b"\0", None)],
)
def test_a_body_that_a_form_would_alter_is_no_text(body: bytes, text: str | None) -> None:
    rows = merged([(A, [[*plan("a"), b"job", body]])])
    assert rows["a"].text == text


def test_a_schedule_is_set_with_its_options_as_words() -> None:
    fields = {"name": "n", "times": "0 3 * * mon", "queue": "q", "body": "x\r\ny"}
    more = {"tz": "Europe/Berlin", "catchup": "yes", "options": 'RETRY 5 HEADERS 1 kind "a b"'}
    assert commands("cron-set", **fields, **more) == [
        (
            *("CRON", "SET", b"n", "0 3 * * mon", "TZ", "Europe/Berlin", "CATCHUP", b"q"),
            *(b"x\ny", b"RETRY", b"5", b"HEADERS", b"1", b"kind", b"a b"),
        )
    ]
    for bad in ({"name": ""}, {"times": ""}, {"queue": ""}, {"options": '"'}):
        with pytest.raises(ValueError, match=r".+"):
            commands("cron-set", **fields | bad)


def test_editing_a_schedule_does_not_make_another_one() -> None:
    fields = {"name": "n", "name-was": "n", "times": "@daily", "queue": "q"}
    assert commands("cron-set", **fields) == [("CRON", "SET", b"n", "@daily", b"q", b"")]
    with pytest.raises(ValueError, match="cannot be renamed"):
        commands("cron-set", **fields | {"name": "m"})


def test_a_schedule_is_run_paused_resumed_and_deleted_by_operators() -> None:
    for word, name in (("RUN", "run"), ("PAUSE", "pause"), ("RESUME", "resume"), ("DEL", "delete")):
        assert commands(f"cron-{name}", schedule=quoted("a b\udcff")) == [
            ("CRON", word, b"a b\xff")
        ]
        assert ACTIONS[f"cron-{name}"].role is Role.OPERATOR
    form = Form({"schedule": ["n"]})
    assert ACTIONS["cron-run"].says(form, [[b"D-1", b"D-2"]]) == "n added D-1, D-2."
    assert ACTIONS["cron-run"].says(form, [b"D-1"]) == "n added D-1."
    assert "There is no schedule" in ACTIONS["cron-delete"].says(form, [0])


# ---- settings ------------------------------------------------------------------------------------


def told(**values: str) -> list[Reply]:
    return [
        word.encode() for name, value in values.items() for word in (name.replace("_", "-"), value)
    ]


def test_settings_have_what_they_mean_and_where_nodes_differ() -> None:
    found = read(
        [
            (A, told(of_the_future="1", maxmemory="0", port="7711", timeout="0")),
            (B, told(of_the_future="1", maxmemory="5", port="7712", timeout="0")),
        ]
    )
    assert found["maxmemory"].differs
    assert found["maxmemory"].help
    assert not found["timeout"].differs
    assert found["timeout"].is_default(A)
    assert found["of-the-future"].section == "Others"
    rows = [row.name for _, _, rows in sections(found, "", True) for row in rows]
    assert rows == ["maxmemory"]
    rows = [row.name for _, _, rows in sections(found, "FUTURE", False) for row in rows]
    assert rows == ["of-the-future"]


def test_no_secret_is_shown() -> None:
    found = read([(A, told(requirepass="s3cret", cluster_secret="", new_password="x"))])
    assert {found[name].shown(A) for name in ("requirepass", "new-password")} == {"set (hidden)"}
    assert found["cluster-secret"].shown(A) == "not set"
    assert found["requirepass"].shown(B) == "unknown"
    for name in ("requirepass", "user", "tls-key-file-pass", "cluster-secret", "REQUIREPASS"):
        assert is_secret(name), name
    assert not is_secret("maxmemory")


def test_a_setting_is_set_on_all_nodes_or_one_and_a_secret_is_in_no_audit() -> None:
    fields = {"setting": ["requirepass"], "value": [" a b "]}
    [order] = ACTIONS["setting"].make(Form(fields))
    assert order.command == ("CONFIG", "SET", "requirepass", b" a b ")
    assert order.where is Where.EVERY
    assert ACTIONS["setting"].make(Form(fields | {"node": [A]}))[0].where == A
    assert ACTIONS["setting"].hides(Form(fields)) == ("value",)
    assert ACTIONS["setting"].hides(Form(fields | {"setting": ["timeout"]})) == ()
    assert ACTIONS["setting"].hides(Form({"value": ["x"]})) == ("value",)
    assert "a b" not in ACTIONS["setting"].says(Form(fields), [b"OK"])


def test_settings_and_logs_are_for_admins() -> None:
    for name in ("setting", "rewrite", "kill", "slowlog-reset", "latency-reset"):
        assert ACTIONS[name].role is Role.ADMIN


# ---- slow commands -------------------------------------------------------------------------------


def test_slow_logs_of_nodes_are_one_the_newest_first_and_long_commands_are_cut() -> None:
    long: Sequence[Reply] = [b"ADDJOB", b"x" * 5_000, *[b"w"] * 40]
    found = read_slow([(A, [[2, 200, 900, list(long)], [1, 100, 50, []]]), (B, [[9, 150, 7, []]])])
    assert [(slow.node, slow.id) for slow in found] == [(A, 2), (B, 9), (A, 1)]
    assert len(found[0].words) == WORDS
    assert len(found[0].words[1]) == WORD + 1
    assert found[0].more == 42 - WORDS


def test_stalls_come_the_worst_first() -> None:
    found = read_stalls([(A, [[b"command", 100, 5, 9]]), (B, [[b"fork", 90, 50, 80]])])
    assert [(stall.event, stall.last, stall.worst) for stall in found] == [
        ("fork", 50, 80),
        ("command", 5, 9),
    ]


# ---- bananaq -------------------------------------------------------------------------------------


def counts(**numbers: int) -> list[Reply]:
    return [value for name, number in numbers.items() for value in (name.encode(), number)]


def test_the_lag_of_a_group_is_what_it_has_still_to_be_given() -> None:
    queues = bananaq.read(
        [
            [b"calm", [b"g", counts(total=3, done=3)]],
            [b"late", [b"a", counts(total=5, available=2, redo=1, inprogress=2)]],
            [b"new", []],
        ]
    )
    assert [queue.name for queue in bananaq.find(queues, "")] == ["late", "calm", "new"]
    [group] = queues[1].groups
    assert (group.lag, group.inprogress, group.consumers) == (3, 2, 0)
    assert [queue.name for queue in bananaq.find(queues, "G")] == ["calm"]
    with pytest.raises(ProtocolError):
        bananaq.read(b"OK")
