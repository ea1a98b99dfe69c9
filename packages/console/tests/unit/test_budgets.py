"""The budgets of users, as the console reads them from INFO."""

from disque_console.model.budgets import Limit, budgets
from disque_trio.overview.nodes import Nodes

A, B = "10.0.0.1:7711", "10.0.0.2:7711"
SHOP = "memory=95,maxmemory=100,keys=1,maxkeys=5,rate=50,waited=3,refused=2,closed=1"


def test_budgets_are_sorted_by_user_and_node() -> None:
    nodes = Nodes()
    for address in (B, A):
        nodes.responded(address, address * 2, 100.0)
        nodes.take(address, {"user_shop": SHOP, "used_memory": "5"}, "", 101.0)
    nodes.take(A, {"user_shop": SHOP, "user_mail": "new=x,keys=0,maxkeys=7,waited=1"}, "", 102.0)
    found = budgets(nodes.all())
    assert [(budget.user, budget.node) for budget in found] == [
        ("mail", A),
        ("shop", A),
        ("shop", B),
    ]
    mail, shop, _ = found
    assert (mail.limits, mail.rate, mail.waited) == ((Limit("keys", 0, 7),), 0, 1)
    assert [(one.name, one.used, one.most, one.near, one.is_size) for one in shop.limits] == [
        ("memory", 95, 100, True, True),
        ("keys", 1, 5, False, False),
    ]
    assert (shop.rate, shop.waited, shop.refused, shop.closed) == (50, 3, 2, 1)


def test_what_a_lost_node_last_said_is_not_shown() -> None:
    nodes = Nodes()
    nodes.responded(A, "a" * 40, 100.0)
    nodes.take(A, {"user_shop": SHOP}, "", 101.0)
    nodes.lost(A, "gone", 102.0)
    assert budgets(nodes.all()) == []
