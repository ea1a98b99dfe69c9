"""How a worker starts, its errors if it cannot, and its metrics and probes."""

import json
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.harness import HANG_SECONDS, NodeFactory, free_port, start_process, wait_until
from tests.support.worker_rig import Rig, worker_rig


def read(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page of a worker."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{path}", timeout=HANG_SECONDS
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# ---- the start ----------------------------------------------------------------------------------


def test_tasks_of_all_queues_of_the_app_run(rig: Rig) -> None:
    rig.add("quick", 1)
    rig.add("sms", 2, queue="sms")
    worker = rig.start(target="app:shop")
    rig.noted("quick", 1)
    rig.noted("sms", 2)
    assert worker.stop() == 0


def test_a_pattern_stands_for_all_queues_that_match_old_and_new(rig: Rig) -> None:
    rig.add("quick", 1, queue="hooks.a")
    worker = rig.start("--queues", "hooks.*,sms:2")
    rig.noted("quick", 1)
    rig.add("quick", 2, queue="hooks.b")
    rig.add("sms", 3, queue="sms")
    rig.add("quick", 4, queue="hooks.b.dead")
    rig.noted("quick", 2)
    rig.noted("sms", 3)
    assert worker.stop() == 0
    with rig.client() as client:
        assert client.qlen("hooks.b.dead") == 1


def test_hooks_are_called_when_workers_and_processes_start_and_end(rig: Rig) -> None:
    hooks = "\n".join(
        f"@app.hooks.on_{event}\n{kind} {event}():\n    note('{event}')\n"
        for event, kind in {
            "worker_start": "def",
            "process_start": "def",
            "shutdown": "async def",
        }.items()
    )
    rig.change('@app.task(name="sms"', f'{hooks}\n@app.task(name="sms"')
    worker = rig.start("--processes", "2")
    worker.serves(2)
    assert worker.stop() == 0
    names = [words[0] for words in rig.notes()]
    assert sorted(names) == ["process_start"] * 2 + ["shutdown"] * 2 + ["worker_start"]


def test_a_target_that_is_not_an_app_is_one_line(rig: Rig) -> None:
    worker = rig.start(target="shop:VERSION")
    assert worker.ends() == 1
    assert "not a Disque app" in worker.last_line()


def test_an_app_that_cannot_be_imported_shows_where(rig: Rig) -> None:
    rig.change("VERSION = 1", "VERSION = nothing")
    worker = rig.start("--processes", "2")
    assert worker.ends() == 1
    assert "NameError" in worker.last_line()
    assert "shop.py:7" in worker.output.read_text()


def test_the_worker_waits_for_an_unreachable_node_and_then_names_it(tmp_path: Path) -> None:
    with worker_rig(tmp_path, free_port()) as rig:
        worker = rig.start("--wait", "0")
        assert worker.ends() == 1
        assert f"node can be reached: 127.0.0.1:{rig.port}" in worker.last_line()


def test_a_node_may_start_after_its_worker(tmp_path: Path) -> None:
    with worker_rig(tmp_path, free_port()) as rig:
        worker = rig.start("--wait", "60")
        wait_until(lambda: worker.pids("starting"))
        node = start_process(tmp_path, rig.port, "--port", str(rig.port), "--bind", "127.0.0.1")
        try:
            worker.serves()
            rig.add("quick", 1)
            rig.noted("quick")
            assert worker.stop() == 0
        finally:
            node.close()


def test_a_worker_that_waits_for_a_node_stops_at_once(tmp_path: Path) -> None:
    with worker_rig(tmp_path, free_port()) as rig:
        worker = rig.start("--wait", "1000", "--grace", "1000")
        wait_until(lambda: worker.pids("starting"))
        assert worker.stop() == 0


def test_a_wrong_password_is_reported_at_once(disque_server: NodeFactory, tmp_path: Path) -> None:
    with worker_rig(tmp_path, disque_server("--requirepass", "secret").port) as rig:
        worker = rig.start("--wait", "1000")
        assert worker.ends() == 1
        assert "does not accept the password" in worker.last_line()
        status, line = rig.check()
        assert status == 1
        assert "does not accept the password" in line


def test_a_used_port_for_metrics_is_reported(rig: Rig) -> None:
    worker = rig.start("--metrics", str(rig.port))
    assert worker.ends() == 1
    assert "--metrics" in worker.last_line()


# ---- queues -------------------------------------------------------------------------------------


def test_while_both_queues_have_jobs_their_weights_apply(rig: Rig) -> None:
    rig.add_all("quick", [[n] for n in range(12)])
    rig.add_all("sms", [[n] for n in range(12)], queue="sms")
    worker = rig.start("--concurrency", "1", "--queues", "mail,sms:5")
    taken = "".join(words[0][0] for words in rig.noted(count=24))
    assert taken == "ssqsss" * 2 + "ss" + "q" * 10  # q is mail
    assert worker.stop() == 0


# ---- what it tells ------------------------------------------------------------------------------


def test_prometheus_gets_counts_and_probes_get_the_state(rig: Rig) -> None:
    port = free_port()
    worker = rig.start("--metrics", f"127.0.0.1:{port}")
    worker.serves()
    rig.add_all("quick", [[1], [2]])
    rig.add("gate", "never")
    rig.noted("quick", count=2)

    def counts() -> dict[tuple[str, str], float]:
        return {
            (
                sample.name.removeprefix("disque_worker_"),
                sample.labels.get("task", ""),
            ): sample.value
            for family in text_string_to_metric_families(read(port, "/metrics")[1])
            for sample in family.samples
        }

    wait_until(lambda: counts().get(("tasks_total", "quick")) == 2)
    wait_until(lambda: counts()["in_hand", ""] == 1)
    assert counts()["task_seconds_count", "quick"] == 2
    assert read(port, "/healthz")[0] == 200
    assert read(port, "/nothing")[0] == 404
    assert rig.check("--metrics", str(port), "--status-file", "status")[0] == 0
    worker.signal(9)
    worker.ends()
    status, line = rig.check("--metrics", str(port))
    assert (status, f"no worker answers at 127.0.0.1:{port}" in line) == (1, True)


def test_a_check_needs_no_worker(rig: Rig) -> None:
    assert rig.check()[0] == 0
    status, line = rig.check(target="no_such:app")
    assert (status, "no_such" in line) == (1, True)


def test_a_check_has_a_timeout(rig: Rig) -> None:
    rig.change("VERSION = 1", "time.sleep(1000)")
    status, line = rig.check("--check-timeout", "0.5")
    assert status == 1
    assert "within 0.5 s" in line


def test_all_its_lines_have_the_same_form(rig: Rig) -> None:
    queue = f"new-{rig.port}-lines"  # whose policy the worker sets
    rig.change('@app.task(name="sms", queue="sms"', f'@app.task(name="sms", queue="{queue}"')
    worker = rig.start("--log-format", "json")
    worker.serves()
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.output.read_text().splitlines()]
    assert all({"time", "level", "pid", "event"} <= set(line) for line in lines)
    assert [line["dead"] for line in lines if line.get("queue") == queue] == [f"{queue}.dead"]
