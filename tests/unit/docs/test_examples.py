"""Examples that contain the commands of a page, which a test of that page runs."""

from tests.support import ROOT
from tests.support.doc_blocks import block
from tests.support.documented import commands

SHOP = "From a web shop's orders to a table and a report"


def test_the_archive_of_spark_has_the_commands_of_the_page() -> None:
    script = (ROOT / "examples" / "spark-archive" / "shop.sh").read_text().replace("7791", "7711")
    make, server, _, *rest = commands("spark-pipelines.md", SHOP).splitlines(True)
    assert make + server.partition(" --daemonize")[0] in script
    assert script.endswith("\n\n" + "".join(rest))


def test_the_scores_of_spark_have_the_commands_of_the_page() -> None:
    lines = block("examples/spark/README.md", ".venv/bin/python examples/spark/score.py").lines()
    page = commands("spark-process.md", "A small model that scores texts").splitlines()
    assert [line for line in lines if line not in page] == []
