"""What the parent tells nodes about jobs of its processes."""

import trio

from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls
from disque_trio.worker.deaths import Return
from disque_trio.worker.keeper import Keeper, login_of
from disque_trio.worker.ledger import RUNNING, TAKEN, LedgerEntry
from tests.support.fake_disque import JOB_ID, FakeNode, fake_node


def entry(node: FakeNode, number: int, state: int = RUNNING) -> LedgerEntry:
    return LedgerEntry(JOB_ID.format(number), str(node.address), state)


async def test_jobs_are_given_back_with_a_pause_and_a_reason() -> None:
    async with fake_node() as node, trio.open_nursery() as nursery:
        node.answers |= {"NACK": b":1\r\n", "ENQUEUE": b":1\r\n"}
        keeper = Keeper(nursery, Login(password="secret"))
        node.answers["AUTH"] = b"+OK\r\n"
        back = [Return(entry(node, 0), 0.5, b"died"), Return(entry(node, 1, TAKEN), 0, b"")]
        assert await keeper.give_back(back, once=True) == []
        ids = [JOB_ID.format(number).encode() for number in range(2)]
        assert [command for command in node.seen if command[0] != b"HELLO"] == [
            [b"AUTH", b"secret"],
            [b"NACK", ids[0], b"DELAY", b"0.500", b"REASON", b"died"],
            [b"ENQUEUE", ids[1]],
        ]
        nursery.cancel_scope.cancel()


async def test_it_says_which_jobs_no_node_has_taken() -> None:
    async with fake_node() as node, trio.open_nursery() as nursery:
        node.answers |= {"NACK": b"-ERR no\r\n", "ENQUEUE": b":1\r\n"}
        keeper = Keeper(nursery, Login())
        lost = LedgerEntry(JOB_ID.format(2), "", RUNNING)
        back = [
            Return(entry(node, 0), 0.5, b"died"),
            Return(entry(node, 1, TAKEN), 0, b""),
            Return(lost, 0, b"died"),
        ]
        left = await keeper.give_back(back, once=True)
        assert sorted(left) == [JOB_ID.format(0), JOB_ID.format(2)]
        await node.stop()
        left = await keeper.give_back(back[:1], once=True)
        assert left == [JOB_ID.format(0)]
        nursery.cancel_scope.cancel()


async def test_jobs_are_kept_as_long_as_their_retry_times_say() -> None:
    async with fake_node() as node, trio.open_nursery() as nursery:
        node.answers["WORKING"] = [b":30\r\n", b"-NOJOB gone\r\n"]
        keeper = Keeper(nursery, Login())
        kept = await keeper.keep([entry(node, 0), entry(node, 1)])
        assert kept == {JOB_ID.format(0): 30}
        nursery.cancel_scope.cancel()


def test_a_login_comes_as_it_was_sent() -> None:
    tls = {"ca_file": "ca.pem", "check_hostname": False}
    said = {"username": "u", "password": "p", "tls": tls, "client_name": None}
    expected = Tls(ca_file="ca.pem", check_hostname=False)
    assert login_of(said) == Login("u", "p", expected)
    assert login_of({**said, "tls": None}).tls is None
    assert login_of({**said, "tls": True}).tls is True
