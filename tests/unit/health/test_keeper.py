"""What is kept of conditions, and what of them is logged, with a moved clock."""

from disque_trio.health.keeper import QUIET, Alarm, Fact, Keeper, Recently, Teller
from disque_trio.health.table import CONDITIONS

START = 1_700_000_000_000  # ms
FULL = Fact("disk-full", "the disk is full")
LOST = Fact("peer-lost", "10.0.0.2:7711 does not answer", "10.0.0.2:7711")


class Told(Teller):
    """Remembers what was told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[str] = []

    def begins(self, alarm: Alarm, times: int) -> None:
        self.begun.append((alarm.kind, times))

    def ends(self, alarm: Alarm, now: int) -> None:
        self.ended.append(alarm.kind)


def test_a_condition_is_listed_while_it_holds_with_the_time_when_it_began() -> None:
    keeper = Keeper(Told())
    keeper.look([FULL], START)
    keeper.look([Fact("disk-full", "it still is")], START + 5_000)
    assert keeper.alarms() == [Alarm("disk-full", "it still is", "", START)]
    keeper.look([], START + 6_000)
    assert not keeper.alarms()
    keeper.look([FULL], START + 7_000)
    assert keeper.alarms()[0].since == START + 7_000


def test_the_worst_come_first_then_the_oldest() -> None:
    keeper = Keeper(Told())
    rewrite = Fact("rewrite", "no space")
    keeper.look([rewrite], START)
    keeper.look([rewrite, LOST], START + 1)
    keeper.look([LOST, FULL, rewrite], START + 2)
    assert [alarm.kind for alarm in keeper.alarms()] == ["peer-lost", "disk-full", "rewrite"]


def test_several_of_a_kind_are_told_apart() -> None:
    told = Told()
    keeper = Keeper(told)
    other = LOST._replace(about="10.0.0.3:7711")
    keeper.look([LOST, other], START)
    keeper.look([other], START + 1)
    assert [alarm.about for alarm in keeper.alarms()] == ["10.0.0.3:7711"]
    assert told.ended == ["peer-lost"]


def test_one_line_says_that_it_begins_and_one_that_it_ends() -> None:
    told = Told()
    keeper = Keeper(told)
    for second in range(200):
        keeper.look([FULL], START + second * 1000)
    keeper.look([], START + 200_000)
    keeper.look([], START + 201_000)
    assert told.begun == [("disk-full", 1)]
    assert told.ended == ["disk-full"]


def test_what_comes_and_goes_is_told_once_a_minute() -> None:
    told = Told()
    keeper = Keeper(told)
    for second in range(0, 120, 2):
        keeper.look([FULL], START + second * 1000)
        keeper.look([], START + (second + 1) * 1000)
    assert told.begun == [("disk-full", 1), ("disk-full", QUIET // 2000)]
    assert told.ended == ["disk-full", "disk-full"]


def test_what_has_come_again_within_a_minute_and_stays_is_told_when_the_minute_is_over() -> None:
    told = Told()
    keeper = Keeper(told)
    keeper.look([FULL], START)
    keeper.look([], START + 1000)
    keeper.look([FULL], START + 2000)
    assert keeper.alarms()
    keeper.look([FULL], START + QUIET - 1)
    assert len(told.begun) == 1
    keeper.look([FULL], START + QUIET)
    assert told.begun == [("disk-full", 1), ("disk-full", 1)]


def test_what_usually_passes_counts_only_when_it_lasts() -> None:
    told = Told()
    keeper = Keeper(told)
    patience = CONDITIONS["loading"].patience
    loading = Fact("loading", "it loads")
    keeper.look([loading], START)
    keeper.look([loading], START + patience - 1)
    assert not keeper.alarms()
    keeper.look([], START + patience)
    assert not told.begun
    assert not told.ended
    keeper.look([loading], START + patience + 1)
    keeper.look([loading], START + 2 * patience + 1)
    assert keeper.alarms()[0].since == START + patience + 1
    assert told.begun == [("loading", 1)]


def test_what_the_finder_logs_itself_is_listed_and_not_told() -> None:
    told = Told()
    keeper = Keeper(told)
    keeper.look([Fact("open-door", "anybody can join", "bus")], START)
    assert len(keeper.alarms()) == 1
    keeper.look([], START + 1)
    assert not told.begun
    assert not told.ended


def test_a_clock_that_is_set_back_makes_nothing_begin_in_the_future() -> None:
    told = Told()
    keeper = Keeper(told)
    keeper.look([FULL], START)
    keeper.look([FULL], START - 3_600_000)
    assert keeper.alarms()[0].since == START - 3_600_000
    keeper.look([], START - 3_600_000)
    keeper.look([FULL], START - 3_599_000)
    assert len(told.begun) == 2  # nobody knows how long ago the last line is


def test_a_counter_has_grown_recently_for_a_while() -> None:
    recently = Recently(600)
    assert not recently.grew(0, START)
    assert recently.grew(3, START + 1)
    assert recently.grew(3, START + 600)
    assert not recently.grew(3, START + 601)
    assert not recently.grew(0, START + 602)  # somebody has reset it
    assert recently.grew(1, START + 603)
    assert not recently.grew(1, START - 10_000_000)
