"""Who holds how much, and who has to go if the sum is too much."""

from disque_trio.respserver.holdings import Holdings


def holdings(limit: int, **sizes: int) -> Holdings[str]:
    account: Holdings[str] = Holdings(limit)
    for name, size in sizes.items():
        account.note(name, size)
    return account


def test_what_is_noted_last_of_a_holder_is_what_it_holds() -> None:
    account = holdings(0, a=10, b=5)
    account.note("a", 30)
    account.note("b", 0)
    account.note("b", 0)
    assert (account.total, account.sizes) == (30, {"a": 30})
    account.note("a", 0)
    assert (account.total, account.sizes) == (0, {})


def test_without_a_limit_nothing_is_too_much() -> None:
    account = holdings(0, a=1 << 60)
    assert not account.over
    assert account.excess() == []


def test_the_limit_itself_may_be_reached() -> None:
    account = holdings(30, a=20, b=10)
    assert not account.over
    account.note("b", 11)
    assert account.over


def test_those_that_hold_most_go_first_and_no_more_than_have_to() -> None:
    account = holdings(30, a=1, b=20, c=25, d=3)
    assert account.excess() == ["c"]
    account.limit = 23
    assert account.excess() == ["c", "b"]
    account.limit = 1
    assert account.excess() == ["c", "b", "d"]


def test_who_is_spared_stays_but_counts() -> None:
    account = holdings(20, a=1, b=25, c=7)
    assert account.excess(lambda holder: holder == "b") == ["c", "a"]
    account.limit = 28
    assert account.excess(lambda holder: holder == "b") == ["c"]
