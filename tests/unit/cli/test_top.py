"""The page of --top, and the keys that change it."""

import re

import pytest

from disque_trio.cli.top.cells import cells, fit, wrap
from disque_trio.cli.top.keys import Keys
from disque_trio.cli.top.page import Line, page, snapshot
from disque_trio.cli.top.terminal import painted
from disque_trio.cli.top.view import SORTS, View
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.running import RunningJob

A, B = "10.0.0.1:7711", "10.0.0.2:7711"
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "two\r\nlines",
    "\x9b31mred",
    "a\u202eb",
    "\udc9b2J",
    "x" * 100_000,
    "日本" * 500,
    "e" + "\u0301" * 100_000,
    "\U000e0041\u200b\u00ad",
    "\U0001f468\u200d\U0001f469\ufe0f",
)


def cluster(*queues: str, added: int = 10) -> Cluster:
    """A cluster of one node, where each queue has one job more than the one before."""
    found = Cluster()
    found.nodes.responded(A, "a" * 40, 100.0)
    for moment, count in ((100.0, 0), (101.0, added)):
        found.take(A, {"total_jobs_added": str(count)}, "", moment)
        found.nodes.looked(A, True, "", moment)
        for number, name in enumerate(queues):
            told = {b"len": number, b"jobs-in": count * number, b"blocked": 0, b"pause": b"none"}
            found.queues.take(A, name, told, moment)
    return found


def texts(known: Cluster, view: View | None = None, width: int = 80, height: int = 24) -> list[str]:
    return [line.text for line in page(known, view or View(), width, height, 200.0)]


def names(known: Cluster, view: View, height: int = 24) -> list[str]:
    """Return the queues on the page, in order."""
    lines = page(known, view, 80, height, 200.0)
    [title] = [place for place, line in enumerate(lines) if line.style == "reverse"]
    return [line.text.split()[-1] for line in lines[title + 1 : -1] if line.text]


# ---- the page ------------------------------------------------------------------------------------


def test_a_page_has_the_whole_and_a_line_for_each_queue() -> None:
    lines = texts(cluster("mail", "sms"))
    assert len(lines) == 24
    head = " ".join(lines[:3])
    for part in ("1 node up", "2 queues", "1 queued", "added 10/s", "delivered 0/s"):
        assert part in head
    [title] = [line for line in lines if line.rstrip().endswith("queue")]
    [row] = [line for line in lines if line.endswith("sms")]
    assert row.split()[:2] == ["1", "10"]
    assert row.index("sms") == title.index("queue ")
    assert lines[-1].startswith("1-2 of 2")


def test_an_unreachable_node_is_reported_and_the_rest_is_shown() -> None:
    known = cluster("mail")
    known.nodes.meet(B, 100.0)
    assert "1 connecting" in " ".join(texts(known))
    known.lost(B, "Connection \x1b[2J refused", 140.0)
    lines = texts(known)
    assert "1 unreachable" in " ".join(lines)
    assert f"{B} unreachable for 60 s: Connection \\x1b[2J refused" in lines
    assert any(line.endswith("mail") for line in lines)


def test_processes_of_a_server_are_one_node() -> None:
    known = cluster("mail")
    known.nodes.responded(B, "b" * 40, 100.0)
    lines = {f"process{n}": f"state=up,id={id * 40},address=" for n, id in enumerate("ab")}
    for address in (A, B):
        state = known.nodes.get(address)
        assert state is not None
        state.info = lines
    known.lost(B, "timed out", 140.0)
    head = " ".join(texts(known))
    assert "1 node up" in head
    assert "1 of 2 processes" in head
    assert "   1 unreachable" not in head


def test_many_problems_leave_room_for_queues() -> None:
    known = cluster("mail")
    for number in range(30):
        known.lost(f"10.1.0.{number}:7711", "timed out", 140.0)
    assert any(line == "and 28 more" for line in texts(known))
    small = texts(known, width=40, height=10)
    assert any("and 29 more" in line or "~" in line for line in small)
    assert any(line.endswith("mail") for line in small)
    assert sum("unreachable for" in line for line in snapshot(known, 200.0)) == 30


def test_a_node_that_refuses_is_reported() -> None:
    known = cluster("mail")
    known.nodes.looked(A, True, "NOPERM no INFO for you", 102.0)
    assert f"{A} refuses: NOPERM no INFO for you" in texts(known)
    assert f"{A} refuses: NOPERM no INFO for you" in snapshot(known, 200.0)


def test_a_cluster_that_has_not_told_yet_is_shown_as_such() -> None:
    known = Cluster()
    assert "0 nodes up" in texts(known)[0]
    known.nodes.responded(A, "a" * 40, 100.0)
    assert "still reading" in " ".join(texts(known))
    assert "added -/s" in " ".join(texts(known))


@pytest.mark.parametrize("width", [1, 2, 20, 40, 80, 300])
@pytest.mark.parametrize("height", [1, 2, 3, 10, 60])
def test_a_page_fits_into_any_terminal(width: int, height: int) -> None:
    known = cluster(*HOSTILE, *[f"queue-{number}" for number in range(100)])
    known.lost(B, "timed out", 140.0)
    for view in (View(), View(), View(), View()):
        lines = texts(known, view, width, height)
        assert len(lines) <= height
        assert max(map(cells, lines)) <= width
    view = View()
    for key in ("?", "x", "f", "G", "/", *"queue", "日"):
        view.press(key)
        lines = texts(known, view, width, height)
        assert len(lines) <= height
        assert max(map(cells, lines)) <= width


def test_a_small_terminal_has_queues_and_what_matters_most() -> None:
    lines = texts(cluster(*[f"queue-{number}" for number in range(50)]), width=40, height=10)
    [title] = [line for line in lines if "queued" in line and "queue " in line]
    assert "acked/s" in title
    assert sum("queue-" in line for line in lines) >= 4
    tiny = texts(cluster("mail", "sms"), width=20, height=5)
    assert tiny[0].startswith("1 node up")
    assert [line.split()[-1] for line in tiny[1:4]] == ["queue", "mail", "sms"]
    view = View()
    view.press("w")
    assert "waiting" in " ".join(texts(cluster("q"), view, 40, 10))


def test_full_counts_are_shown_on_request() -> None:
    known = cluster("mail")
    view = View()
    assert not any("in hand" in line for line in texts(known, view, 120))
    view.press("f")
    told = {b"len": 3, b"jobs-in-hand": 41, b"jobs-delayed": 42, b"jobs-dead": 43}
    known.queues.take(A, "mail", told, 102.0)
    lines = texts(known, view, 120)
    assert any("in hand" in line for line in lines)
    [row] = [line for line in lines if line.endswith("mail")]
    assert row.split()[-4:-1] == ["41", "42", "43"]


def test_a_backlog_on_disk_and_a_disk_that_takes_no_more_are_told() -> None:
    known = cluster("mail")
    assert "disk" not in " ".join(texts(known))
    info = {"paging_jobs": "12345", "paging_problem": "No space left on device"}
    known.take(A, info, "", 102.0)
    lines = texts(known, width=120)
    assert "12,345 jobs on disk" in " ".join(lines)
    assert f"{A}: jobs cannot go to disk: No space left on device" in lines
    view = View()
    view.press("f")
    told = {b"len": 15_000, b"jobs-delayed": 0, b"jobs-paged": 12_345}
    known.queues.take(A, "mail", told, 103.0)
    [row] = [line for line in texts(known, view, 120) if line.endswith("mail")]
    assert "12,345" in row or "12.3" in row
    # A count of all jobs says nothing about where they are.
    known.queues.counted(A, {}, 110.0, 111.0, 60.0)
    found = known.queues.row("mail")
    assert found is not None
    assert found.paged is None


def test_control_characters_in_names_do_not_reach_the_terminal() -> None:
    known = cluster(*HOSTILE)
    known.lost("\x1b[31m", "\x1b]0;x\x07", 150.0)
    view = View()
    for key in "/\x9b":
        view.press(key)
    view.search = ""
    shown = painted(page(known, view, 100, 30, 200.0))
    ours = re.compile(r"\x1b\[(?:[0127]?m|H|J|K)|\r\n")
    assert all(char.isprintable() for char in ours.sub("", shown))
    assert shown.count("\r\n") == 29
    for line in snapshot(known, 200.0):
        assert line.isprintable()


def test_a_snapshot_has_all_queues_with_their_whole_names() -> None:
    known = cluster(*[f"{'long' * 100}-{number}" for number in range(500)])
    lines = snapshot(known, 200.0)
    assert sum("longlong" in line for line in lines) == 500
    assert lines[-1].endswith("-99")


# ---- keys ----------------------------------------------------------------------------------------


def test_queues_are_sorted_by_name_and_by_keys_that_turn_around() -> None:
    known, view = cluster("b", "a", "c"), View()
    assert names(known, view) == ["a", "b", "c"]
    view.press("n")
    assert names(known, view) == ["c", "b", "a"]
    view.press("l")
    assert names(known, view) == ["c", "a", "b"]
    view.press("l")
    assert names(known, view) == ["b", "a", "c"]
    view.press("r")
    assert names(known, view) == ["c", "a", "b"]
    for key in SORTS:
        view.press(key)
        assert sorted(names(known, view)) == ["a", "b", "c"]


def test_a_list_is_scrolled_within_its_ends() -> None:
    known = cluster(*[f"q{number:03}" for number in range(100)])
    view = View()
    room = len(names(known, view, 20))
    view.press("up")
    assert names(known, view, 20)[0] == "q000"
    view.press("page down")
    view.press("j")
    assert names(known, view, 20)[0] == f"q{room + 1:03}"
    view.press("end")
    assert names(known, view, 20)[-1] == "q099"
    view.press("down")
    assert names(known, view, 20)[-1] == "q099"
    view.press("page up")
    assert names(known, view, 20)[-1] == f"q{99 - room:03}"
    view.press("home")
    assert names(known, view, 20)[0] == "q000"


def test_a_search_is_typed_kept_and_ended() -> None:
    known, view = cluster("mail.in", "mail.out", "sms"), View()
    for key in "/out":
        view.press(key)
    assert names(known, view) == ["mail.out"]
    assert texts(known, view)[-1] == "search: out_"
    view.press("backspace")
    view.press("clear")
    for key in ("mail.*", "q"):
        for char in key:
            view.press(char)
    view.press("backspace")
    view.press("enter")
    assert names(known, view) == ["mail.in", "mail.out"]
    assert "search: mail.*" in texts(known, view)[-1]
    view.press("escape")
    assert len(names(known, view)) == 3
    assert not view.over


def test_keys_are_explained_and_end_it() -> None:
    view = View()
    view.press("?")
    assert any("quit" in line for line in texts(cluster(), view))
    view.press("x")
    assert not view.help
    view.press("q")
    assert view.over


def test_keys_are_found_in_pieces_of_what_a_terminal_sends() -> None:
    keys = Keys()
    assert keys.feed(b"q\x1b[A\x1bOB\x1b[5~\x1b[1;5C/\r\x7f") == [
        *("q", "up", "down", "page up", "/", "enter", "backspace")
    ]
    assert keys.feed(b"\x1b") == []
    assert keys.waits
    assert keys.feed(b"[6") == []
    assert keys.feed(b"~x") == ["page down", "x"]
    assert keys.feed(b"\xe6\x97") == []
    assert keys.feed(b"\xa5") == ["日"]
    assert keys.feed(b"\x1b") == []
    assert keys.flush() == ["escape"]
    assert keys.flush() == []
    assert keys.feed(b"\x00\x01\x02\xff") == ["\ufffd"]
    assert len(keys.feed(b"\x1b[" + b"9" * 10_000)) < 10_001
    assert Keys("iso8859-1").feed(b"\xe9q") == ["é", "q"]


# ---- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "fitting"),
    [
        ("plain", 5, "plain"),
        ("plain", 4, "pla~"),
        ("日本", 4, "日本"),
        ("日本", 3, "日~"),
        ("日本", 2, "~"),
        ("a\tb", 10, "a\\x09b"),
        ("x", 0, ""),
    ],
)
def test_text_is_cut_to_the_cells_there_are(text: str, width: int, fitting: str) -> None:
    assert fit(text, width) == fitting
    assert cells(fit(text, width)) <= width


def test_parts_are_put_into_lines_without_breaking_them() -> None:
    assert wrap(["one", "two", "three"], 8, " ") == ["one two", "three"]
    assert wrap(["steady words"], 6) == ["stead~"]


def test_lines_have_styles_that_end_with_them() -> None:
    assert painted([Line("a", "bold"), Line("b")]) == (
        "\x1b[H\x1b[1ma\x1b[0m\x1b[K\r\nb\x1b[0m\x1b[K\x1b[J"
    )


def test_a_queue_whose_jobs_nobody_has_asked_for_is_told_from_a_busy_one() -> None:
    known = cluster("empty")
    for name, more in (("unserved", {}), ("busy", {b"jobs-out": 7}), ("idle", {b"blocked": 2})):
        told = {b"len": 3, b"jobs-in": 10, b"blocked": 0, b"pause": b"none", **more}
        known.queues.take(A, name, told, 102.0)
    waiting = {line.split()[-1]: line.split()[-3] for line in snapshot(known, 200.0)[-4:]}
    assert waiting == {"busy": "0", "empty": "0", "idle": "2", "unserved": "never"}


def test_tasks_say_how_far_they_are() -> None:
    known = cluster("mail")
    view = View()
    view.press("t")
    assert any("t queues" in line for line in texts(known, view))
    jobs = [RunningJob(f"D-{n}", f"queue-{n}", n / 40, f"page {n} of 40") for n in range(41)]
    jobs.append(RunningJob("D-x", HOSTILE[0], 0.5, HOSTILE[1]))
    known.running.took(A, jobs)
    lines = texts(known, view, 120)
    assert any(line.startswith("  0% ---------- queue-0 ") for line in lines)
    assert any("page 1 of 40" in line and "D-1" in line for line in lines)
    view.press("G")
    assert any("100% ##########" in line for line in texts(known, view, 120, 100))
    assert all(line.isprintable() for line in texts(known, view, 120, 100))
    for key in "/queue-40":
        view.press(key)
    view.press("enter")
    assert [line for line in texts(known, view) if "page 40 of 40" in line]
    assert not [line for line in texts(known, view) if "page 39" in line]
    for width in (1, 10, 30, 60, 111):
        for height in (1, 2, 5, 20):
            lines = texts(known, view, width, height)
            assert len(lines) <= height
            assert max(map(cells, lines)) <= width
    view.press("t")
    assert names(cluster("mail"), View()) == ["mail"]
