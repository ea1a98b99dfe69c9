"""The commands in docs/*.md are run as written."""

import importlib.util
import os
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark.pipeline import main
from tests.support import ROOT
from tests.support.documented import Typist, commands, port_digits, section
from tests.support.harness import free_port

LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
SHOP = "From a web shop's orders to a table and a report"
THREE = "Nothing is lost: three nodes and an archive that is killed twice"
MODEL = "A small model that scores texts"
EXAMPLE = ROOT / "examples" / "spark" / "score.py"


@pytest.mark.live
@pytest.mark.timeout(400)
def test_a_web_shop_has_a_table_and_a_report_as_documented(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = commands("spark-pipelines.md", SHOP)
    tables = commands("spark-tables.md", "Formats") + commands("spark-tables.md", "Decoded bodies")
    tables += commands("spark-tables.md", "Compaction")
    tables = "".join(
        line
        for line in tables.splitlines(True)
        if "/tmp/shop" in line or "redis-cli" in line  # the others are for other machines
    )
    assert tables.count("disque-pipeline") == 3
    running, end, over = shop.partition("redis-cli -p 7711 SHUTDOWN\n")
    replay = commands("spark-pipelines.md", "replay").splitlines(True)
    over += "".join(line for line in replay if "/tmp/shop" in line)
    assert (running + over).count("disque-pipeline") == 4
    typist = Typist(
        tmp_path,
        {"7711": str(free_port()), "/tmp/shop": str(tmp_path / "shop")},
        lambda arguments: main(arguments, lambda _: spark),
    )
    printed = typist.type(running + tables + end + over)
    assert "1000 jobs archived in" in printed
    assert "no findings" in printed
    assert "No job was lost" in (tmp_path / "shop" / "report.html").read_text()


@pytest.mark.skipif(not LONG, reason="takes two minutes; set DISQUE_SPARK_LONG")
@pytest.mark.live
@pytest.mark.timeout(600)
def test_nothing_is_lost_when_an_archive_is_killed_twice_as_documented(tmp_path: Path) -> None:
    script = commands("spark-pipelines.md", THREE)
    assert script.count("kill -9") == 2
    assert script.count("disque-pipeline") == 3
    typist = Typist(tmp_path, {"771": port_digits(), "/tmp/three": str(tmp_path / "three")})
    printed = typist.type(script, strictly=False)
    assert printed.count("Killed") >= 2, printed
    assert "exit status 0\n" in printed, printed
    assert "\n0 produced and not archived\n" in printed, printed
    produced = (tmp_path / "three" / "produced.ids").read_text().splitlines()
    assert len(produced) > 1000
    assert "No job was lost" in (tmp_path / "three" / "report.html").read_text()


def test_the_model_of_the_page_tells_mails_apart() -> None:
    spec = importlib.util.spec_from_file_location("score", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    model = score.Model([score.mail(number) for number in range(10_000, 10_300)])
    mails = [score.mail(number) for number in range(300)]
    right = (model([text for text, _ in mails]) > 0.5) == [odd for _, odd in mails]
    assert right.mean() > 0.95


@pytest.mark.skipif(not LONG, reason="starts a Spark of its own; set DISQUE_SPARK_LONG")
@pytest.mark.live
@pytest.mark.timeout(300)
def test_mails_are_scored_as_documented(tmp_path: Path) -> None:
    (expected,) = re.findall(r"```text\n(.*?)```", section("spark-process.md", MODEL), re.DOTALL)
    port = str(free_port())
    program = tmp_path / "score.py"
    program.write_text(EXAMPLE.read_text().replace("7711", port))
    others = {"examples/spark/score.py": str(program), "7711": port}
    others["/tmp/score"] = str(tmp_path / "score")
    assert expected in Typist(tmp_path, others).type(commands("spark-process.md", MODEL))
