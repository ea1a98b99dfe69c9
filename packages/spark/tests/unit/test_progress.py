"""Progress, with what a source in Python cannot report in the proper place."""

import json

import pytest

from disque_spark.leases.backlog import Behind, reported
from disque_spark.progress import Backlog, QueueBacklog, described

LATEST = {"seq": 3, "log": "a9"} | reported("disque: x at a:1", {"x": Behind(14, 10, 7.25)})


@pytest.mark.parametrize("latest", [LATEST, json.dumps(LATEST)])
def test_a_source_of_disque_gets_its_description_and_metrics(latest: object) -> None:
    other = {"description": "Rate", "latestOffset": 5}
    ours = {"description": "PythonMicroBatchStream@f28d7c2", "latestOffset": latest}
    progress = described({"name": "mine", "sources": [ours, other]})
    assert progress["name"] == "mine"
    assert progress["sources"][1] == other
    assert progress["sources"][0] == {
        "description": "disque: x at a:1",
        "latestOffset": latest,
        "metrics": {
            "minJobsBehindLatest": "10",
            "maxJobsBehindLatest": "10",
            "avgJobsBehindLatest": "10.0",
            "totalJobsBehindLatest": "10",
        },
    }
    backlog = Backlog.of(latest)
    assert backlog is not None
    assert backlog.queues == {"x": QueueBacklog(14, 10, 7.25)}


@pytest.mark.parametrize("latest", [None, "", "null", "{", "5", {"seq": 1}, {"metrics": 1}])
def test_other_offsets_are_left_alone(latest: object) -> None:
    assert Backlog.of(latest) is None
    assert described({"sources": [{"latestOffset": latest}]}) == {
        "sources": [{"latestOffset": latest}]
    }
    assert described({"sources": None}) == {"sources": []}
