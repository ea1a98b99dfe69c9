"""Several nodes in one test whose queues go to disk early."""

from tests.support.mesh import Mesh
from tests.support.paged import PagedBench


class PagedMesh(Mesh):
    """Nodes with segments of a few jobs; what lies on disk is in memory, too.

    Attributes:
        nodes: a ``PagedBench`` each.
    """

    make = PagedBench
    nodes: list[PagedBench]  # type: ignore[assignment]

    def __getitem__(self, index: int) -> PagedBench:
        return self.nodes[index]

    def settle(self) -> None:
        while True:
            super().settle()
            for bench in self.nodes:
                bench.node.replied()
                while bench.orders:
                    bench.carry_out()
                    bench.node.commit()
            dues = [(bench.node.paging.due, bench.now) for bench in self.nodes]
            if not self.moving and not any(0 < due <= now for due, now in dues):
                return
            for bench in self.nodes:
                bench.node.tick(bench.now)

    def send_to_disk(self, index: int) -> None:
        """Let the jobs of one node go to disk from now on."""
        self.nodes[index].node.paging.set_above(1)
        self.settle()
        self.settle()

    def stop_paging(self, index: int) -> None:
        """Let no more of them go."""
        self.nodes[index].node.paging.set_above(None)
