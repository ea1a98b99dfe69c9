"""The comparison on real servers, as far as they are installed, with tiny amounts of work."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import backlog
from benchmarks.peers import LEVELS, Level, Subject, all_subjects
from tests.support.commands import run_command
from tools.bench.load import ask_once
from tools.bench.servers import DISQUE_COMMAND, Recipe, ServerError, family_cpu_seconds, running

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.live


def compare(*arguments: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
    words = ("compare", "--quick", *arguments)
    return run_command("benchmarks.__main__", *words, cwd=ROOT, text=True, env=environment)


@pytest.mark.parametrize("subject", all_subjects(), ids=lambda subject: subject.key)
def test_a_server_leads_all_jobs_through_their_lives_at_every_level(
    subject: Subject, tmp_path: Path
) -> None:
    missing = subject.missing()
    if missing is not None:
        pytest.skip(missing)
    output = tmp_path / "results.json"
    done = compare("--subjects", subject.key, "--json", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    levels: list[Level] = [level for level in LEVELS if subject.lacks(level) is None]
    settings = [(result["level"], result["pipeline"]) for result in results]
    assert settings == [(level, pipeline) for level in levels for pipeline in (1, 16)]
    for result in results:
        assert result["jobs"] == 128
        assert result["cpu"] > 0
        assert 0 < result["p50"] <= result["p99"] <= result["p999"] <= result["seconds"]
    assert done.stdout.count(f"| {subject.title}") == len(results)
    assert "written: build/compare.svg" in done.stderr


@pytest.mark.parametrize(
    "subject", backlog.subjects(DISQUE_COMMAND), ids=lambda subject: subject.key
)
def test_a_server_takes_a_backlog_and_gives_it_back(subject: Subject, tmp_path: Path) -> None:
    missing = subject.missing()
    if missing is not None:
        pytest.skip(missing)
    output = tmp_path / "results.json"
    words = ("backlog", "--quick", "--subjects", subject.key, "--json", str(output))
    done = run_command("benchmarks.__main__", *words, cwd=ROOT, text=True)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(output.read_text())["results"]
    assert result["jobs"] == 2_000
    assert min(result[what] for what in ("adding", "taking", "resident", "disk")) > 0
    assert (result["paged"] > 0) == (subject.key == backlog.OURS)
    assert f"| {subject.title} |" in done.stdout


def test_all_are_measured_in_turn() -> None:
    done = compare("--subjects", "list,disque", "--durability", "everysec", "--pipelines", "16")
    assert done.returncode == 0, done.stderr
    assert "\n| every second | 16 | disque-trio |" in done.stdout
    assert "\n| every second | 16 | Redis list |" in done.stdout


def test_a_missing_server_is_left_out_with_a_hint_on_installing_it(tmp_path: Path) -> None:
    done = compare(
        *("--subjects", "disque,beanstalkd,nats", "--durability", "none"), path=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "| disque-trio |" in done.stdout
    for package in ("beanstalkd", "nats-server"):
        assert f"apt-get install {package}" in done.stdout


def test_nothing_to_measure_is_an_error(tmp_path: Path) -> None:
    done = compare("--subjects", "beanstalkd", path=str(tmp_path))
    assert done.returncode == 1
    assert "apt-get install beanstalkd" in done.stderr


def test_a_server_that_does_not_start_is_reported_with_its_own_words() -> None:
    words = "import sys; sys.exit('no such setting')"
    done = compare("--subjects", "disque", "--server", f"{sys.executable} -c {words!r}")
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "no such setting" in done.stderr


def test_a_server_ends_with_its_block_and_leaves_no_files(tmp_path: Path) -> None:
    (subject,) = (one for one in all_subjects() if one.key == "list")
    with running(
        *("redis", "redis"),
        lambda directory: subject.recipe(directory, "always"),
        subject.client(100, "always").prepare,
        base=str(tmp_path),
    ) as instance:
        assert ask_once(instance.port, b"PING\r\n") == b"+PONG"
        assert instance.family_cpu_seconds() > 0
        assert list(tmp_path.iterdir()) != []
    assert [process.poll() is None for process in instance.processes] == [False]
    assert list(tmp_path.iterdir()) == []


def test_the_processes_before_a_server_end_with_it(tmp_path: Path) -> None:
    waits = (sys.executable, "-c", "input()")
    missing = Recipe(("no-such-program",), 1, before=[waits])
    recipe = Recipe(("cat", "/dev/zero"), 1, before=[("tail", "-f", "/dev/null")])
    with running(*("two", "two"), lambda _: recipe, lambda _: None, base=str(tmp_path)) as instance:
        assert len(instance.processes) == 2
    assert all(process.poll() is not None for process in instance.processes)
    with (
        pytest.raises(ServerError, match="cannot be started"),
        running(*("none", "none"), lambda _: missing, print, base=str(tmp_path)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_cpu_time_of_a_server_is_that_of_its_children_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    # One child that stays alive, and one that has ended.
    program = (
        "import subprocess, sys\n"
        f"code = {burn!r}\n"
        "subprocess.run((sys.executable, '-c', code))\n"
        "more = code + \"print('done', flush=True); input()\"\n"
        "child = subprocess.Popen((sys.executable, '-c', more), stdin=subprocess.PIPE)\n"
        "child.wait()\n"
    )
    command = (sys.executable, "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        used = family_cpu_seconds([process.pid])
        own = time.clock_gettime((~process.pid << 3) | 2)
        process.kill()
    assert 0.58 < used - own < 5
    with pytest.raises(OSError, match=r"."):
        family_cpu_seconds([process.pid])
