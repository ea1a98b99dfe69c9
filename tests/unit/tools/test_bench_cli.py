"""Options, tables, and their place in the documentation."""

import json
import re
from dataclasses import fields
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from tools.bench import __main__ as bench
from tools.bench import cli, command
from tools.bench.cli import ROOT, DocsError, heading, replace_section
from tools.bench.measure import Sample, Setting
from tools.bench.throughput import Plan, Rest, level_table, matrix_table, rest_table

PACKAGES = {"tools.bench": bench.RUNS, "benchmarks": benchmarks.RUNS}
PAGE = "# Title\n\n<!-- bench a: begin -->\nold\n<!-- bench a: end -->\n\nMore.\n"


def sample(server: str, cpu: float, round_: int = 0, held: int = 0, own_cpu: float = 0.1) -> Sample:
    command = "ADDJOB" if server == "disque" else "LPUSH"
    return Sample(
        server=server,
        step="add",
        command=command,
        setting=Setting(round_, 16, 50, held=held),
        commands=200_000,
        seconds=2.0,
        cpu=cpu,
        own_cpu=own_cpu,
        p50=0.001,
        p99=0.002,
        p999=0.003,
        worst=0.004,
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_section_between_the_markers_is_replaced() -> None:
    page = replace_section(PAGE, "a", "new")
    assert page == PAGE.replace("\nold\n", "\n\nnew\n\n")
    assert replace_section(page, "a", "newer") == page.replace("new", "newer")


@pytest.mark.parametrize("name", ["b", ""])
def test_a_page_without_the_markers_is_refused(name: str) -> None:
    with pytest.raises(DocsError, match="missing"):
        replace_section(PAGE, name, "new")


def test_a_page_whose_end_marker_comes_first_is_refused() -> None:
    with pytest.raises(DocsError, match="missing"):
        replace_section("<!-- bench a: end --><!-- bench a: begin -->", "a", "new")


def test_the_heading_says_how_to_make_the_table_again() -> None:
    text = heading("tools.bench", ["memory", "--server", "a b", "--quick"], {"python": "3.11"})
    assert "`python -m tools.bench memory --server 'a b' --quick`" in text
    assert "python 3.11" in text


def test_the_heading_names_files_as_seen_from_the_root_of_the_checkout() -> None:
    server = ROOT / ".venv-compiled" / "bin" / "disque-server"
    for arguments in (["--server", str(server)], [f"--server={server}"]):
        text = heading("benchmarks", arguments, {})
        assert str(ROOT) not in text
        assert ".venv-compiled/bin/disque-server" in text
    text = heading(
        "benchmarks", ["--server", f"{server} --port 1", "--redis", "/elsewhere/redis-server"], {}
    )
    assert "--server '.venv-compiled/bin/disque-server --port 1' --redis redis-server`" in text


def test_ratios_are_the_median_of_those_within_a_round() -> None:
    costs = [(2.0, 1.0), (6.0, 2.0), (4.0, 8.0)]
    samples = []
    for number, (ours, theirs) in enumerate(costs):
        samples += [sample("disque", ours, number), sample("redis", theirs, number)]
    titles, _, row = matrix_table(samples).splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["command"] == "ADDJOB / LPUSH"
    assert found["CPU ratio"] == "**2.00**"
    assert found["(range)"] == "0.50-3.00"
    assert found["disque CPU s/100k"] == "2.000"
    assert found["redis CPU s/100k"] == "1.000"
    assert found["disque rate/s"] == "100,000"
    assert found["disque p50 / p99 / p999 ms"] == "1.00 / 2.00 / 3.00"


def test_a_rate_that_the_generator_limits_is_marked() -> None:
    samples = [sample("disque", 1.0, own_cpu=1.9), sample("redis", 1.0)]
    titles, _, row = matrix_table(samples).splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["disque rate/s"] == "100,000+"
    assert found["redis rate/s"] == "100,000"


def test_growth_is_shown_against_the_lowest_level() -> None:
    samples = [sample("disque", 3.0, held=1_000_000), sample("disque", 2.0, held=1_000)]
    text = level_table(samples, lambda s: s.setting.held, "held")
    titles, _, row = text.splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["command"] == "disque ADDJOB"
    assert found["CPU s/100k, 1,000 held"] == "1.000"
    assert found["CPU ratio, 1,000,000 held"] == "**1.50** (1.50-1.50)"


def test_rest_is_the_median_of_the_rounds() -> None:
    rests = [Rest("disque", 10_000, cpu) for cpu in (0.001, 0.002, 0.009)]
    assert cells(rest_table(rests).splitlines()[-1]) == ["disque", "10,000", "2.0"]


def test_every_client_gets_work_in_whole_batches() -> None:
    plan = Plan(work=0.001)
    for pipeline in (1, 16, 64):
        commands = plan.commands(pipeline, 1000)
        assert commands >= 1000 * pipeline
        assert commands % pipeline == 0


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, runs in PACKAGES.items() for name in runs]
)
def test_every_run_has_options_with_defaults_and_a_place_in_the_documentation(
    package: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = command.module_of(package, name)
    plan, options = cli.parse(name, module, [])
    assert plan == module.Plan()
    with pytest.raises(SystemExit, match="0"):
        command.main(package, PACKAGES[package], [name, "--help"])
    shown = capsys.readouterr().out
    for one in fields(module.Plan):
        assert f"--{one.name.replace('_', '-')}" in shown
    if hasattr(module, "PAGE"):
        assert not options.write_docs
        cli.check_place(module, plan)


def test_quick_is_other_defaults_and_a_given_option_counts_more() -> None:
    module = import_module("tools.bench.throughput")
    plan, _ = cli.parse("throughput", module, ["--quick", "--rounds", "2"])
    assert (plan.rounds, plan.idle, plan.size) == (2, 200, 100)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--size", "3"], "at least 12"),
        (["--pipelines", "1,0"], "at least 1"),
        (["--scenario", "none"], "invalid choice"),
        (["--server"], "expected one argument"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main("tools.bench", bench.RUNS, ["throughput", *arguments])
    assert said in capsys.readouterr().err


def test_every_command_in_the_documentation_names_a_run_and_its_options() -> None:
    found = 0
    for page in chain(*map(ROOT.glob, ("*.md", "docs/*.md", "packages/*/docs/*.md"))):
        text = page.read_text()
        for package, words in re.findall(r"python -m (tools\.bench|benchmarks) ([^`#\n]+)", text):
            name, *arguments = cli.words(words)
            if name == "RUN" or "--help" in (name, *arguments):
                continue
            found += 1
            cli.parse(name, command.module_of(package, name), arguments)
    assert found > 20


def test_a_summary_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("benchmarks.compare")
    monkeypatch.setattr(cli, "DOCS", tmp_path)
    (tmp_path / module.PAGE).write_text(PAGE.replace("bench a", "bench compare"))
    (tmp_path / "performance.md").write_text(PAGE.replace("bench a", "bench compare summary"))
    cli.write_docs(module, module.Plan(), "Made so.", cli.Findings("All.", summary="In short."))
    assert "Made so.\n\nAll.\n" in (tmp_path / module.PAGE).read_text()
    assert "Made so.\n\nIn short.\n" in (tmp_path / "performance.md").read_text()
    (tmp_path / "performance.md").write_text("")
    with pytest.raises(DocsError, match="compare summary"):
        cli.check_place(module, module.Plan())


def test_a_run_prints_its_findings_and_writes_samples_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module("tools.bench.throughput")
    picture = cli.Picture("a.svg", "<svg/>", "A picture")
    found = cli.Findings("The text.", [sample("disque", 1.0)], [picture], {"files on": "ext4"})
    monkeypatch.setattr(module, "run", lambda plan: found)
    monkeypatch.setattr(module, "PINNED", False, raising=False)
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    monkeypatch.setattr(cli, "DOCS", tmp_path)
    page = tmp_path / "performance-tables.md"
    page.write_text(PAGE.replace("bench a", "bench matrix"))
    output = tmp_path / "samples.json"
    words = ["throughput", "--write-docs", "--json", str(output)]
    assert command.main("tools.bench", bench.RUNS, words) == 0
    text = capsys.readouterr().out
    assert "Made by `python -m tools.bench throughput --write-docs" in text
    assert "files on ext4" in text
    assert f"![A picture](a.svg)\n\n{text.strip()}" in page.read_text()
    assert (tmp_path / "a.svg").read_text() == "<svg/>"
    assert json.loads(output.read_text())["results"][0]["setting"]["clients"] == 50
