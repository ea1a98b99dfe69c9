"""What is logged about the state of a Redis, and when; its fields of INFO."""

from disque_bananaq.redis_store.health import (
    DOWN,
    HUNG,
    MOST_CHANGES,
    REFUSING,
    REPEAT_SECONDS,
    UP,
    Health,
    Notice,
)

NODE = "redis.example.com:6379"
TRIP = 0.0002


def status(health: Health, now: float = 0.0) -> object:
    return health.info(now)["redis_link_status"]


def every(lines: list[list[Notice]]) -> list[str]:
    return [line.event for some in lines for line in some]


def test_an_unknown_redis_counts_as_down() -> None:
    info = Health().info(5.0)
    assert info["redis_link_status"] == DOWN
    assert info["redis_errors"] == 0
    assert info["redis_last_error"] == ""
    assert info["redis_last_error_age_seconds"] == info["redis_round_trip_us"] == -1


def test_a_change_is_logged_at_once_and_once() -> None:
    health = Health()
    assert len(health.replied(NODE, 0.0, TRIP)) == 1
    assert health.replied(NODE, 1.0, TRIP) == []
    assert status(health) == UP
    [line] = health.failed(NODE, 2.0, DOWN, "refused\r\nby nobody")
    assert line.urgent
    assert line.fields["redis"] == NODE
    assert line.fields["reason"] == "refused by nobody"
    assert health.failed(NODE, 3.0, DOWN, "refused") == []
    assert status(health) == DOWN
    [line] = health.failed(NODE, 4.0, HUNG, "no reply")
    assert line.urgent
    assert status(health) == HUNG
    [line] = health.failed(NODE, 5.0, REFUSING, "OOM")
    assert line.urgent
    assert status(health) == REFUSING
    [line] = health.replied(NODE, 32.5, TRIP)
    assert not line.urgent
    assert line.fields["seconds"] == 30
    assert status(health) == UP


def test_a_lasting_state_is_repeated_now_and_then_with_a_count() -> None:
    health = Health()
    health.failed(NODE, 0.0, DOWN, "refused")
    later = [health.failed(NODE, float(now), DOWN, "refused") for now in range(1, 200)]
    lines = [line for some in later for line in some]
    assert len(lines) == 200 // REPEAT_SECONDS
    assert [line.fields["seconds"] for line in lines] == [60, 120, 180]
    assert [line.fields["failures"] for line in lines] == [60, 60, 60]
    assert every([health.replied(NODE, 200.0 + now, TRIP) for now in range(200)]) == [
        "Redis is back"
    ]


def test_a_redis_that_comes_and_goes_does_not_flood_the_log() -> None:
    health = Health()
    lines = []
    for now in range(600):
        if now % 2:
            lines += health.failed(NODE, float(now), DOWN, "refused")
        else:
            lines += health.replied(NODE, float(now), TRIP)
    assert len(lines) == 600 / REPEAT_SECONDS * MOST_CHANGES
    assert sum(int(line.fields.get("failures", 0)) for line in lines) >= 270
    # The final state is logged, even if late.
    rest = range(600, 661)
    last = [line for now in rest for line in health.failed(NODE, float(now), DOWN, "refused")]
    assert (lines + last)[-1].urgent
    assert len(last) <= 2


def test_the_fields_of_info_are_true_at_any_time() -> None:
    health = Health()
    health.replied(NODE, 0.0, TRIP)
    assert health.info(1.0)["redis_round_trip_us"] == 200
    assert health.info(1.0)["redis_down_since_seconds"] == 0
    health.count_error(2.0, "the connection\nbroke")
    health.failed(NODE, 2.0, DOWN, "the connection broke")
    info = health.info(12.0)
    assert info["redis_down_since_seconds"] == 10
    assert info["redis_round_trip_us"] == -1
    assert info["redis_errors"] == 1
    assert info["redis_last_error"] == "the connection broke"
    assert info["redis_last_error_age_seconds"] == 10
    health.failed(NODE, 13.0, HUNG, "no reply")
    assert health.info(14.0)["redis_down_since_seconds"] == 12
    health.replied(NODE, 14.0, TRIP)
    info = health.info(20.0)
    assert info["redis_link_status"] == UP
    assert info["redis_down_since_seconds"] == 0
    assert info["redis_errors"] == 1
    assert info["redis_last_error_age_seconds"] == 18


def test_a_loss_soon_after_the_start_and_its_end_are_logged() -> None:
    health = Health()
    lines = health.replied(NODE, 0.0, TRIP)
    lines += health.failed(NODE, 1.0, DOWN, "refused")
    lines += health.replied(NODE, 2.0, TRIP)
    assert [line.urgent for line in lines] == [False, True, False]


def test_a_restart_is_logged_once_with_the_number_of_keys_before_and_after() -> None:
    health = Health()
    health.replied(NODE, 0.0, TRIP, keys=0, run_id="a")
    health.replied(NODE, 1.0, TRIP, keys=7)
    assert health.replied(NODE, 2.0, TRIP, keys=8, run_id="a") == []  # a connection was lost
    [line] = health.replied(NODE, 3.0, TRIP, keys=5, run_id="b")
    assert line.urgent
    assert (line.fields["keys_before"], line.fields["keys"]) == (8, 5)
    assert health.replied(NODE, 4.0, TRIP, keys=5) == []
    [empty] = health.replied(NODE, 5.0, TRIP, keys=0, run_id="c")
    assert empty.event != line.event
    assert health.info(6.0)["redis_restarts"] == 2


def test_a_cluster_is_in_the_state_of_its_worst_node() -> None:
    health = Health()
    for node in "abc":
        health.replied(node, 0.0, TRIP)
    assert health.info(0.0)["redis_nodes_up"] == health.info(0.0)["redis_nodes"] == 3
    [line] = health.failed("b", 1.0, REFUSING, "OOM")
    assert line.fields["redis"] == "b"
    health.failed("c", 2.0, HUNG, "no reply")
    health.replied("a", 3.0, TRIP)
    assert status(health) == HUNG
    assert health.info(4.0)["redis_nodes_up"] == 1
    health.only(["a", "b", "d"])  # c has been replaced
    assert status(health) == REFUSING
    assert health.info(4.0)["redis_nodes"] == 2


def test_a_return_that_is_logged_late_tells_how_long_the_outage_was() -> None:
    health = Health()
    now = 0.0
    for _ in range(MOST_CHANGES):  # uses up the lines of this minute
        health.replied(NODE, now, TRIP)
        health.failed(NODE, now, DOWN, "refused")
    assert health.replied(NODE, 5.0, TRIP) == []
    late = [line for at in range(6, 100) for line in health.replied(NODE, float(at), TRIP)]
    assert [line.fields["seconds"] for line in late] == [5]
