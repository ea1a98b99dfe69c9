"""Charts of the last hours: what they show, and that they survive a restart of the console."""

import re
import signal
from pathlib import Path

import pytest

from packages.console.tests.support.accessibility import barriers_here
from packages.console.tests.support.browser import WIDTHS, Browser, faults_here
from packages.console.tests.support.console import Answer, ConsoleProcess, console
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until
from tests.support.live_helpers import add_job, start_node

RANGES = {"1h": "hour", "8h": "8 hours", "24h": "24 hours"}


def told(answer: Answer, line: str) -> list[str]:
    """What the charts of a page say of a line, for each moment of which something is known."""
    return re.findall(rf"<title>[^<]* ago: [^<]*\b{line} ([0-9.kM]+)", answer.text)


def worked(node: LiveNode, queue: str, jobs: int = 5) -> None:
    for _ in range(jobs):
        add_job(node.wire(), queue)


def wait_for_chart(found: ConsoleProcess, queue: str) -> Answer:
    """The page of a queue, once its chart has jobs."""
    visitor = found.visitor()
    path = f"/queue?name={queue}"
    wait_until(lambda: any(word != "0" for word in told(visitor.get(path), "queued")))
    return visitor.get(path)


@pytest.mark.parametrize("path", ["/", "/queue?name=ranges"])
def test_the_range_of_the_charts_is_chosen_by_links(
    open_console: ConsoleProcess, node: LiveNode, path: str
) -> None:
    add_job(node.wire(), "ranges")
    open_console.wait_for("/queue?name=ranges", "On the nodes")
    visitor = open_console.visitor()
    page = visitor.get(path)
    assert 'aria-label="Jobs' in page.text
    for name, title in RANGES.items():
        links = [
            attributes["href"]
            for tag, attributes in visitor.get(path).tags
            if tag == "a" and f"range={name}" in attributes.get("href", "")
        ]
        page = visitor.get(links[0])
        assert f"in the last {title}" in page.text
        chosen = [
            attributes["href"]
            for tag, attributes in page.tags
            if tag == "a" and attributes.get("aria-current") == "true"
        ]
        assert [link for link in chosen if "range=" in link] == [links[0]]


def test_charts_survive_a_restart_in_all_ranges_also_without_a_node(tmp_path: Path) -> None:
    own = start_node(tmp_path)
    try:
        worked(own, "kept")
        with console(tmp_path, [own.port], "--state-dir", str(tmp_path / "state")) as found:
            wait_for_chart(found, "kept")
            assert "Charts end with the console" not in found.visitor().get("/").says
            wait_until(lambda: "5" in told(found.visitor().get("/"), "queued"))
            assert found.stop() == 0
    finally:
        own.close()
    with console(tmp_path, [own.port], "--state-dir", str(tmp_path / "state")) as found:
        visitor = found.visitor()
        for name in RANGES:
            assert told(visitor.get(f"/queue?name=kept&range={name}"), "queued") == ["5"]
            assert told(visitor.get(f"/?range={name}"), "queued") == ["5"]


def test_without_a_directory_charts_end_and_the_page_says_so(
    node: LiveNode, tmp_path: Path
) -> None:
    worked(node, "forgotten")
    with console(tmp_path, [node.port]) as found:
        page = wait_for_chart(found, "forgotten")
        assert "Charts end with the console" in page.says
        assert found.stop() == 0
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".log"] == []


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"disque-console charts 0 little\nxx"])
def test_a_damaged_file_is_left_aside_and_the_console_serves(
    node: LiveNode, tmp_path: Path, damage: bytes
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "charts").write_bytes(damage)
    with console(tmp_path, [node.port], "--state-dir", str(state)) as found:
        found.wait_for("/", " up ")
        assert (state / "charts.aside").read_bytes() == damage
        assert found.stop() == 0
    assert (state / "charts").read_bytes() not in (b"", damage)


def test_a_file_of_another_cluster_is_left_aside(
    node: LiveNode, shared_node: LiveNode, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    worked(node, "elsewhere")
    with console(tmp_path, [node.port], "--state-dir", str(state)) as found:
        wait_for_chart(found, "elsewhere")
        assert found.stop() == 0
    mine = (state / "charts").read_bytes()
    with console(tmp_path, [shared_node.port], "--state-dir", str(state)) as found:
        found.wait_for("/", " up ")
        assert found.stop() == 0
    assert (state / "charts.aside").read_bytes() == mine
    with console(tmp_path, [free_port()], "--state-dir", str(state)) as found:
        assert told(found.visitor().get("/queue?name=elsewhere"), "queued") == []


def test_a_directory_that_cannot_be_used_is_said_and_no_failure(
    node: LiveNode, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with console(tmp_path, [node.port], "--state-dir", str(tmp_path / "file")) as found:
        found.wait_for("/", "Charts are not kept: File exists")
        assert found.stop() == 0


def test_two_consoles_do_not_use_one_directory(node: LiveNode, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with console(tmp_path, [node.port], "--state-dir", state) as first:
        with console(tmp_path, [node.port], "--state-dir", state) as second:
            second.wait_for("/", "Charts are not kept: another console uses the directory")
            assert second.stop() == 0
        assert not (tmp_path / "state" / "charts").exists()
        assert first.stop() == 0
    assert (tmp_path / "state" / "charts").exists()


def test_a_console_that_was_killed_leaves_the_file_as_it_was(
    node: LiveNode, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    worked(node, "killed")
    with console(tmp_path, [node.port], "--state-dir", state) as found:
        wait_for_chart(found, "killed")
        assert found.stop() == 0
    with console(tmp_path, [node.port], "--state-dir", state) as found:
        found.process.send_signal(signal.SIGKILL)
        found.process.wait(HANG_SECONDS)
    with console(tmp_path, [free_port()], "--state-dir", state) as found:
        assert told(found.visitor().get("/queue?name=killed"), "queued") == ["5"]


def test_the_line_under_the_mouse_is_seen_and_told(
    chrome: Browser, open_console: ConsoleProcess, node: LiveNode
) -> None:
    worked(node, "hovered")
    wait_for_chart(open_console, "hovered")
    chrome.look()
    chrome.open(f"{open_console.base}/queue?name=hovered&range=8h")
    assert chrome.run("return getComputedStyle(document.querySelector('.cursor')).visibility") == (
        "hidden"
    )
    chrome.hover(".chart:nth-of-type(2) .band")
    wait_until(lambda: "jobs" in chrome.text(".chart:nth-of-type(2) .readout"))
    shown = "return getComputedStyle(document.querySelector('.band:hover .cursor')).visibility"
    assert chrome.run(shown) == "visible"
    for width in WIDTHS:
        chrome.look(width)
        assert faults_here(chrome, width) == []
        assert barriers_here(chrome, width) == []
