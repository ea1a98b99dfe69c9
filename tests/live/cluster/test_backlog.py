"""A backlog larger than memory on three nodes, one of which is lost while it grows."""

from pathlib import Path

from tests.support.soak_of_backlogs import Story, run


def test_a_backlog_larger_than_memory_outlives_a_node(tmp_path: Path) -> None:
    story = Story(jobs=4_000, body=1_000, memory=2 << 20, retry=8, node_timeout=2_000)
    told: list[str] = []
    ledger = run(story, tmp_path, told.append)
    assert ledger.done.count(1) == story.jobs
    assert "all are forgotten" in told[-1]
