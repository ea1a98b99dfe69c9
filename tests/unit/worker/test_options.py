"""The command line of ``disque-worker``."""

import json
import os
import re

import pytest

from disque_trio.worker.options import Options, parse


def test_options_have_defaults() -> None:
    options = parse(["shop.tasks:app"])
    assert (options.app, options.queues, options.concurrency, options.processes) == (
        "shop.tasks:app",
        (),
        8,
        1,
    )
    assert (options.max_memory, options.max_tasks, options.metrics) == (None, None, None)


@pytest.mark.parametrize(
    ("word", "bounds", "scales"),
    [("3", (3, 3), False), ("2..8", (2, 8), True), ("2..2", (2, 2), False)],
)
def test_the_number_of_processes_may_have_bounds(
    word: str, bounds: tuple[int, int], scales: bool
) -> None:
    options = parse(["shop:app", "-p", word])
    assert (options.processes, options.most_processes) == bounds
    assert options.scales is scales
    assert (options.scale_age, options.scale_idle, options.scale_memory) == (5, 30, None)


def test_how_the_number_of_processes_changes_needs_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--scale-age", "1m", "--scale-memory", "2gb"]
    more = parse(["shop:app", "-p", "2..8", *words])
    assert (more.scale_age, more.scale_memory) == (60, 2 << 30)
    for fixed in ([], ["-p", "3"], ["-p", "2..2"]):
        with pytest.raises(SystemExit, match="2"):
            parse(["shop:app", *fixed, *words])
        assert "--scale-age" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "count"), [("", 4), ("-p 2", 2), ("-p 1..2", 2), ("-p 8", 1)])
def test_processes_for_tasks_share_the_cpus(
    monkeypatch: pytest.MonkeyPatch, words: str, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert parse(["shop:app", *words.split()]).cpu_processes == count
    assert parse(["shop:app", *words.split(), "--cpu-processes", "3"]).cpu_processes == 3


def test_all_options_can_be_set() -> None:
    words = "app:shop --queues mail,sms:5 --concurrency 3 -p 4 --max-memory 500mb --max-tasks 7"
    options = parse([*words.split(), "--metrics", "[::1]:9100", "--grace", "0.5"])
    assert options.queues == (("mail", 1), ("sms", 5))
    assert (options.concurrency, options.processes) == (3, 4)
    assert (options.max_memory, options.max_tasks) == (500 << 20, 7)
    assert (options.metrics, options.grace) == (("::1", 9100), 0.5)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b"],
        ["a", "--queues", "x,"],
        ["a", "--queues", "x:0"],
        ["a", "--concurrency", "0"],
        ["a", "--processes", "x"],
        ["a", "--cpu-processes", "0"],
        ["a", "--processes", "8..2"],
        ["a", "--processes", "0..2"],
        ["a", "--processes", "1..x"],
        ["a", "--processes", "..3"],
        ["a", "--grace", "-1"],
        ["a", "--grace", "nan"],
        ["a", "--max-memory", "0"],
        ["a", "--max-memory", "much"],
        ["a", "--max-tasks", "0"],
        ["a", "--metrics", "0"],
        ["a", "--metrics", "host"],
        ["a", "--what"],
    ],
)
def test_an_invalid_option_is_one_line_and_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(words)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not re.search(r"invalid \w+ value", said)  # the name of a function


def test_a_worker_process_gets_the_same_options() -> None:
    words = "a:b --queues mail,sms:5 --metrics 9100 --max-memory 1g --reload"
    options = parse(words.split())
    assert Options.from_json(json.loads(json.dumps(options.to_json()))).queues == options.queues


def test_names_with_stars_are_patterns() -> None:
    options = parse(["shop:app", "--queues", r"hooks.*:2,mail,a\*b"])
    assert options.queues == (("hooks.*", 2), ("mail", 1), (r"a\*b", 1))
    assert options.patterns == ["hooks.*", r"a\*b"]
    assert parse(["shop:app", "--queues", "mail,sms:5"]).patterns == []


def test_a_pattern_that_nodes_would_refuse_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["shop:app", "--queues", "*a" * 33])
    assert "at most 32 stars" in capsys.readouterr().err
