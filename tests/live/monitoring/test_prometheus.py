"""A real Prometheus scrapes a node and its worker, and alerts when the worker is down."""

from pathlib import Path

import pytest

from tests.support.harness import NodeFactory, free_port, wait_until
from tests.support.monitoring import documented
from tests.support.prometheus import prometheus, scraping
from tests.support.worker_rig import worker_rig

pytestmark = pytest.mark.live


def test_an_alert_fires_when_the_worker_is_stopped_and_clears_when_it_is_back(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    of_node, of_worker = free_port(), free_port()
    node = disque_server("--metrics-port", str(of_node))
    config = scraping({"disque": [of_node], "disque-worker": [of_worker]})
    (tmp_path / "app").mkdir()
    with (
        worker_rig(tmp_path / "app", node.port) as rig,
        prometheus(tmp_path / "prometheus", config) as seen,
    ):
        alerts = ("DisqueNoWorker", "DisqueDown")

        def firing() -> set[str]:
            return {alert for alert in alerts if seen.firing(alert)}

        def goes_on() -> None:
            rig.add("quick", 1)
            wait_until(lambda: seen.scrapes("disque") and seen.scrapes("disque-worker"))
            wait_until(lambda: not firing())

        worker = rig.start("--metrics", str(of_worker))
        worker.serves()
        goes_on()
        worker.stop()
        rig.add("quick", 2)
        wait_until(lambda: firing() == set(alerts))
        (no_worker,) = seen.firing("DisqueNoWorker")
        assert (no_worker["queue"], no_worker["job"]) == ("mail", "disque")
        (down,) = seen.firing("DisqueDown")
        assert (down["job"], down["instance"]) == ("disque-worker", f"127.0.0.1:{of_worker}")
        rig.start("--metrics", str(of_worker)).serves()
        goes_on()
        assert rig.noted("quick", count=3)
        # Prometheus accepted everything that they reported, and all of it is in the tables.
        series = seen.ask("label/__name__/values")
        told = {name for name in series if name.startswith("disque_")}
        known = documented()
        ends = ("_bucket", "_sum", "_count", "_created")
        bare = {
            next((name.removesuffix(end) for end in ends if name.endswith(end)), name)
            for name in told
        }
        assert bare <= set(known) | {name.removesuffix("_total") for name in known}
