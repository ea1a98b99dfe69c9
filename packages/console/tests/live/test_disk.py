"""What the console shows of jobs that lie on disk."""

from pathlib import Path

from packages.console.tests.support.console import PAGES, console
from tests.support.harness import wait_until
from tests.support.live_helpers import packed, start_node

LONG = ("--appendonly", "yes", "--maxmemory", "12mb")
JOBS = 18_000


def test_jobs_on_disk_are_shown_and_why_no_more_can_go_there(tmp_path: Path) -> None:
    in_the_way = tmp_path / "pages"
    in_the_way.write_bytes(b"a file, not a directory")
    node = start_node(tmp_path, *LONG)
    try:
        wire = node.wire()
        for _ in range(JOBS // 500):
            wire.raw(packed("ADDJOB", "long", "x" * 10, 0) * 500)
            for _ in range(500):
                assert isinstance(wire.read(), bytes)
        wait_until(lambda: node.info("jobs")["paging_problem"])
        with console(tmp_path, [node.port]) as shown:
            shown.wait_for(PAGES["cluster"], "cannot go to disk")
            assert "cannot go to disk" in shown.visitor().get(PAGES["overview"]).says
            # A segment that is just being tried counts as on disk until it fails.
            shown.wait_for("/queue?name=long", lambda text: "On disk" not in text)
            in_the_way.unlink()
            wait_until(lambda: node.info("jobs")["paging_jobs"] != "0")
            shown.wait_for(PAGES["cluster"], "on disk")
            shown.wait_for(PAGES["overview"], "on disk")
            shown.wait_for(PAGES["cluster"], lambda text: "cannot go to disk" not in text)
            shown.wait_for("/queue?name=long", "of those queued")
            on_disk = f"{int(node.info('jobs')['paging_jobs']):,}"
            shown.wait_for("/queue?name=long", f"On disk {on_disk} of those queued")
    finally:
        node.close()
