"""What a stream reports about the jobs that are not in a batch."""

import json

from disque_spark.leases.backlog import Behind, NodeNow, QueueNow, behind, reported
from disque_spark.leases.store import PartitionPlan

NODES = {
    "a:1": NodeNow({"x": QueueNow(10, 5.0), "y": QueueNow(2, 0.5)}, False),
    "b:1": NodeNow({"x": QueueNow(4, 7.25), "y": QueueNow(0, 0.0)}, True),
}


def test_jobs_in_a_batch_are_not_behind_it() -> None:
    assert behind(NODES, []) == {"x": Behind(14, 14, 7.25), "y": Behind(2, 2, 0.5)}
    plans = [PartitionPlan("a:1", 3), PartitionPlan("a:1", 3), PartitionPlan("gone:1", 9)]
    # 2 from y, since queues are served in turn, and 4 from x.
    assert behind(NODES, plans) == {"x": Behind(14, 10, 7.25), "y": Behind(2, 0, 0.5)}
    assert behind(NODES, [PartitionPlan("a:1", 0)])["x"].behind == 4  # all from this node


def test_it_is_told_as_json_with_figures_as_kafka_has_them() -> None:
    found = reported("disque: x, y", behind(NODES, [PartitionPlan("a:1", 6)]))
    assert json.loads(json.dumps(found)) == {
        "description": "disque: x, y",
        "queues": {
            "x": {"jobs": 14, "behind": 10, "oldestJobAge": 7.25},
            "y": {"jobs": 2, "behind": 0, "oldestJobAge": 0.5},
        },
        "metrics": {
            "minJobsBehindLatest": "0",
            "maxJobsBehindLatest": "10",
            "avgJobsBehindLatest": "5.0",
            "totalJobsBehindLatest": "10",
        },
    }


def test_without_queues_nothing_is_behind() -> None:
    found = reported("disque: pattern *", {})
    assert found["queues"] == {}
    assert isinstance(found["metrics"], dict)
    assert found["metrics"]["avgJobsBehindLatest"] == "0.0"


def test_of_very_many_queues_those_with_few_jobs_are_added_up() -> None:
    queues = {f"q{n}": Behind(n, n, float(n)) for n in range(5)}
    found = reported("", queues, most=3)["queues"]
    assert isinstance(found, dict)
    assert list(found) == ["q4", "q3", ""]
    assert found[""] == {"jobs": 3, "behind": 3, "oldestJobAge": 2.0}
