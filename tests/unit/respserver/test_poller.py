"""The events that the engine asks epoll for."""

import select

from disque_trio.respserver.io.poller import GONE, READ, WRITE


def test_the_numbers_of_the_events_are_the_kernels() -> None:
    assert select.EPOLLIN == READ
    assert select.EPOLLOUT == WRITE
    assert select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP == GONE
