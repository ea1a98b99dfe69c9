"""The cells of ``examples/spark/orders.ipynb``, run in order, with the session of the tests."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import ROOT
from tests.support.harness import NodeFactory, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

NOTEBOOK = ROOT / "examples" / "spark" / "orders.ipynb"


def cells() -> list[str]:
    """The code."""
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # As it is when nobody has run it.
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def test_the_cells_lead_from_a_node_to_a_table_and_an_audit(
    spark: SparkSession,
    disque_server: NodeFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = disque_server("--event-log", "yes")
    node.ask("ADDJOB", "other", "x", 0)
    wait_until(lambda: any(tmp_path.rglob("events/*.open")))
    (events,) = {path.parent for path in tmp_path.rglob("events/*.open")}
    own = {
        "/tmp/shop/node/events": str(events),
        "/tmp/shop": str(tmp_path / "shop"),
        "127.0.0.1:7711": f"127.0.0.1:{node.port}",
    }
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, source in enumerate(cells()):
        for documented, here in own.items():
            source = source.replace(documented, here)
        exec(compile(source, f"cell {number}", "exec"), names)
    assert names["spark"] is spark
    out = capsys.readouterr().out
    assert "1000 orders, 1000 jobs\n" in out
    assert " new events in " in out
    assert "never-" not in out  # delivered, acknowledged
    assert (tmp_path / "shop" / "audit" / "report.html").stat().st_size > 10_000
    life = out.partition("\nD-")[2]
    assert "added to queue orders by client" in life
    assert "It is done." in life
    assert node.ask("QLEN", "orders") == 0
