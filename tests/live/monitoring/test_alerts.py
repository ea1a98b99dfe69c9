"""The alert rules, checked by promtool with made-up series: each fires when it should, and
clears."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from disque_trio.health.table import CONDITIONS
from tests.support.harness import HANG_SECONDS
from tests.support.monitoring import RULES, expressions_of_panels, rules

pytestmark = pytest.mark.live

STEP = 60  # s
# Minutes at which the problem begins and ends, and at which alerts are checked.
BEGIN, END, LAST = 5, 27, 46
BEFORE, WITHIN, AFTER = 4, 26, 45
NODE = 'instance="n1",job="disque"'
QUEUE = f'queue="mail",{NODE}'
WORKER = 'instance="w1",job="disque-worker"'
STREAM = 'instance="s1",job="disque-spark",query="archive"'
WATCH = 'instance="v1",job="disque-watch"'


def gauge(well: float, ill: float) -> str:
    """Return values of a series that has a different one while something is wrong."""
    return " ".join(
        str(ill if BEGIN <= step * STEP / 60 < END else well) for step in range(LAST * 60 // STEP)
    )


def counter(well: float, ill: float) -> str:
    """Return values of a series that grows by this much per minute."""
    value, values = 0.0, []
    for step in range(LAST * 60 // STEP):
        values.append(str(value))
        value += (ill if BEGIN <= step * STEP / 60 < END else well) * STEP / 60
    return " ".join(values)


# The time at each minute; it stands still while something is wrong.
STANDS = " ".join(
    str(BEGIN * 60 if BEGIN <= step * STEP / 60 < END else step * STEP)
    for step in range(LAST * 60 // STEP)
)


class Case(NamedTuple):
    """An alert, and series for which it fires.

    Attributes:
        others: alerts that should fire at the same time.
    """

    alert: str
    series: dict[str, str]
    others: tuple[str, ...] = ()


QUEUED = f'disque_queue_jobs{{state="queued",{QUEUE}}}'
DEAD = f'disque_queue_jobs{{state="dead",{QUEUE}}}'
DELIVERED = f"disque_jobs_delivered_total{{{QUEUE}}}"
REQUEUED = f"disque_jobs_requeued_total{{{QUEUE}}}"
PAUSED = f'disque_queue_paused{{direction="out",{QUEUE}}}'
OLDEST = f"disque_queue_oldest_job_age_seconds{{{QUEUE}}}"
CASES = [
    Case("DisqueDown", {f"up{{{NODE}}}": gauge(1, 0)}),
    Case("DisqueDown", {f"up{{{WORKER}}}": gauge(1, 0)}),
    Case("DisqueProcessDown", {f'disque_process_up{{process="1",{NODE}}}': gauge(1, 0)}),
    Case("DisqueNoWorker", {QUEUED: gauge(5, 5), DELIVERED: counter(60, 0)}),
    Case("DisqueNoWorker", {QUEUED: gauge(0, 5), DEAD: gauge(0, 1), PAUSED: gauge(0, 0)}),
    Case("DisqueJobsWaitTooLong", {OLDEST: gauge(10, 700), DEAD: gauge(0, 0)}),
    Case("DisqueDeadLetters", {f"disque_jobs_dead_total{{{QUEUE}}}": counter(0, 1)}),
    Case(  # of a queue that is first seen with it, and then forgotten
        "DisqueDeadLetters",
        {
            f"up{{{NODE}}}": gauge(1, 1),
            f"disque_jobs_dead_total{{{QUEUE}}}": "_x19 " + "1x7 " + "_x18",
        },
    ),
    Case("DisqueManyRequeues", {DELIVERED: counter(60, 60), REQUEUED: counter(3, 12)}),
    Case("DisqueJobsExpired", {f"disque_jobs_expired_total{{{QUEUE}}}": counter(0, 1)}),
    Case("DisqueSchedulesMissed", {f"disque_schedule_ticks_missed_total{{{NODE}}}": counter(0, 1)}),
    Case(
        "DisqueSlow",
        {
            f'disque_turn_seconds_bucket{{le="0.1",{NODE}}}': counter(1000, 900),
            f'disque_turn_seconds_bucket{{le="0.5",{NODE}}}': counter(1000, 1000),
            f'disque_turn_seconds_bucket{{le="+Inf",{NODE}}}': counter(1000, 1000),
        },
    ),
    Case("DisqueClientsRefused", {f"disque_connections_rejected_total{{{NODE}}}": counter(0, 1)}),
    Case("BananaqRedisDown", {'bananaq_redis_up{instance="b"}': gauge(1, 0)}),
    Case("DisqueWorkerStuck", {f"disque_worker_processes_stuck{{{WORKER}}}": gauge(0, 1)}),
    Case(
        "DisqueWorkerNotServing",
        {
            f'disque_worker_processes{{state="serving",{WORKER}}}': gauge(2, 0),
            f"disque_worker_connected_processes{{{WORKER}}}": gauge(2, 0),
        },
    ),
    Case(
        "DisqueWorkerNotConnected",
        {
            f'disque_worker_processes{{state="serving",{WORKER}}}': gauge(2, 2),
            f"disque_worker_connected_processes{{{WORKER}}}": gauge(2, 1),
        },
    ),
    Case(
        "DisqueWorkerDying",
        {f'disque_worker_restarts_total{{reason="died",{WORKER}}}': counter(0, 1)},
    ),
    Case(
        "DisqueSparkStreamFailed",
        {f'disque_spark_query_state{{state="failed",{STREAM}}}': gauge(0, 1)},
    ),
    Case(
        "DisqueSparkStreamBehind",
        {f'disque_spark_source_behind{{source="0",{STREAM}}}': counter(0, 500)},
    ),
    Case(
        "DisqueSparkStreamSilent",
        {
            f'disque_spark_query_state{{state="running",{STREAM}}}': gauge(1, 1),
            f"disque_spark_last_event_timestamp_seconds{{{STREAM}}}": STANDS,
        },
    ),
    Case("DisqueWatchBehind", {f"disque_watch_read_until_timestamp_seconds{{{WATCH}}}": STANDS}),
    Case(
        "DisqueWatchUntold",
        {f'disque_watch_untold_rows{{receiver="webhook",{WATCH}}}': gauge(0, 12)},
    ),
]
CASES += [
    Case(condition.alert, {f'{server}_alarm{{kind="{condition.kind}",{NODE}}}': gauge(0, 1)})
    for condition in CONDITIONS.values()
    if not condition.expr
    for server in condition.servers
]
# Nothing is wrong with any of these.
QUIET = [
    {QUEUED: gauge(0, 5), PAUSED: gauge(0, 1), OLDEST: gauge(0, 5000)},
    {QUEUED: gauge(5, 5), DEAD: gauge(5, 5), OLDEST: gauge(0, 5000)},
    {f"up{{{NODE}}}": gauge(1, 1), f"disque_jobs_dead_total{{{QUEUE}}}": gauge(3, 3)},  # long ago
    {QUEUED: gauge(5, 5), DELIVERED: counter(1, 1)},  # slowly, but they are taken
    {DELIVERED: counter(0, 0.1), REQUEUED: counter(0, 0.1)},  # a few: no rate to speak of
    {DELIVERED: counter(0, 0), REQUEUED: counter(0, 12)},  # what a node requeues that starts again
    {  # what one node has others may deliver
        QUEUED: gauge(0, 5),
        'disque_jobs_delivered_total{queue="mail",instance="n2",job="disque"}': counter(1, 1),
    },
    {  # a node alone
        f'disque_cluster_nodes{{state="ok",{NODE}}}': gauge(1, 1),
        f"disque_cluster_links_up{{{NODE}}}": gauge(0, 0),
    },
    # Many jobs are waiting, and it catches up, or keeps up.
    {f'disque_spark_source_behind{{source="0",{STREAM}}}': gauge(50_000, 5_000)},
    {f'disque_spark_query_state{{state="stopped",{STREAM}}}': gauge(0, 1)},
    {'up{job="another",instance="x"}': gauge(1, 0)},
]


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def expectation(minute: float, *alerts: str) -> dict[str, Any]:
    """Return the check that exactly these alerts fire at a minute."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{int(minute * 60)}s",
        "exp_samples": [
            {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)
        ],
    }


def story(series: dict[str, str], *checks: dict[str, Any]) -> dict[str, Any]:
    return {
        "interval": f"{STEP}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": list(checks),
    }


def test_the_rules_are_well_formed() -> None:
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_while_something_is_wrong_and_then_clears(tmp_path: Path) -> None:
    stories = [
        story(
            case.series,
            expectation(BEFORE),
            expectation(WITHIN, case.alert, *case.others),
            expectation(AFTER),
        )
        for case in CASES
    ]
    stories += [story(series, *map(expectation, (BEFORE, WITHIN, AFTER))) for series in QUIET]
    tests = tmp_path / "tests.yml"
    tests.write_text(
        yaml.safe_dump(
            {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": stories}
        )
    )
    done = promtool("test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    assert {rule["alert"] for rule in rules()} == {case.alert for case in CASES}


def test_prometheus_accepts_all_expressions_of_the_dashboard(tmp_path: Path) -> None:
    expressions = sorted({expression for _, expression in expressions_of_panels()})
    recorded = [
        {"record": f"dashboard:{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
