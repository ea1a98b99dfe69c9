"""What INFO says while a node loads its file."""

from pathlib import Path

from disque_trio.aof.loader import RECORDS_A_STEP
from disque_trio.aof.persistence import Persistence
from disque_trio.config import Config
from disque_trio.process.logs import Logging
from disque_trio.process.systemd import Notifier
from tests.support.node_bench import Bench


async def test_info_says_how_much_of_the_file_is_loaded_until_all_of_it_is(tmp_path: Path) -> None:
    old = Bench()
    old.node.journaling = True
    for _ in range(2 * RECORDS_A_STEP):
        old.add()
    file = tmp_path / "aof"
    file.write_bytes(b"".join(old.node.journal))
    logging = Logging(path=str(tmp_path / "log"))
    config = Config({"appendonly": True, "appendfilename": str(file)})
    persistence = Persistence(Bench().node, config, logging.log)
    told: list[dict[str, str | int | float]] = []

    def stopped() -> bool:
        told.append(persistence.loading.info())
        return False

    assert await persistence.loading.load(False, Notifier({}), stopped) == 2 * RECORDS_A_STEP
    assert persistence.loading.info() == {}
    size = file.stat().st_size
    assert {fields["loading_total_bytes"] for fields in told} == {size}
    loaded = [int(fields["loading_loaded_bytes"]) for fields in told]
    assert loaded == sorted(loaded)
    assert 0 < loaded[0] < loaded[-1] == size
    for fields, count in zip(told, loaded, strict=True):
        assert fields["loading_loaded_perc"] == f"{100 * count / size:.2f}"
    assert told[-1]["loading_eta_seconds"] == 0
    persistence.close()
    logging.close()
