"""The lines of --stat."""

from disque_trio.cli.stat import HEADER, parse_info, stat_line

BEFORE = {
    "registered_jobs": "100",
    "registered_queues": "3",
    "connected_clients": "7",
    "blocked_clients": "2",
    "used_memory_human": "1.50M",
    "total_jobs_added": "1000",
    "total_jobs_delivered": "10",
    "total_jobs_acked": "5",
    "total_commands_processed": "5000",
}


def test_a_line_shows_counters_and_rates_under_their_titles() -> None:
    now = BEFORE | {"total_jobs_added": "1500", "total_commands_processed": "6001"}
    line = stat_line(now, BEFORE, 2.0)
    assert line.split() == ["100", "3", "7", "2", "1.50M", "250", "0", "0", "500"]
    assert line.index("1.50M") == HEADER.index("mem")
    assert line.index("250") == HEADER.index("adds/s")


def test_the_first_line_has_no_rates() -> None:
    assert stat_line(BEFORE, None, 0.0).split()[-4:] == ["-"] * 4


def test_fields_that_a_node_does_not_have_are_dashes() -> None:
    assert stat_line({}, {}, 1.0).split() == ["-"] * 9


def test_a_restarted_node_has_no_negative_rates() -> None:
    assert "-" not in stat_line(BEFORE | {"total_jobs_added": "0"}, BEFORE, 1.0)


def test_info_is_read_without_its_titles() -> None:
    assert parse_info("# Jobs\r\nregistered_jobs:5\r\n\r\nx:a:b\r\n") == {
        "registered_jobs": "5",
        "x": "a:b",
    }
