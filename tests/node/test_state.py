"""The state directory: records, originals, journal."""

from __future__ import annotations

import json
import multiprocessing
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from remote.node import state as state_module
from remote.node.base import OpError
from remote.node.state import State
from tests.node.kit import Probe


def test_reading_makes_nothing(probe: Probe, tmp_path: Path) -> None:
    found = state_module.state({}, probe.ctx)
    assert found == {
        "dir": str(tmp_path / "state"),
        "exists": False,
        "lock": None,
        "lock_alive": None,
        "deploys": [],
        "boots": [],
        "interrupted": [],
        "journal_tail": [],
        "purged": None,
    }
    assert state_module.history({"limit": 3}, probe.ctx) == {"journal": [], "deploys": [], "boots": []}
    assert not (tmp_path / "state").exists()


def test_directory_is_private(probe: Probe, tmp_path: Path) -> None:
    probe.state.write_record({"a": 1}, "boots", "b1", "boot.json")
    for made in (tmp_path / "state", tmp_path / "state/boots", tmp_path / "state/boots/b1"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state/boots/b1/boot.json").stat().st_mode) == 0o600


_WHOLE = {"named": "/a", "path": "/a", "staged": "/.a", "after_sha256": "00", "original": {"kind": "absent"}}


@pytest.mark.parametrize(
    "record",
    [
        {"deploy_id": "d1", "files": None},
        {"deploy_id": "d1", "files": [{}]},
        {"deploy_id": "d1", "files": [{**_WHOLE, "path": None}]},
        {"deploy_id": "d1", "files": [{**_WHOLE, "original": {}}]},
        {"deploy_id": "d1", "files": [], "pending": 5},
        {"deploy_id": "d2", "files": [_WHOLE]},
    ],
)
def test_a_record_of_a_deploy_that_lacks_something_is_damaged(probe: Probe, record: dict[str, Any]) -> None:
    """Each command ended with a traceback then."""
    probe.state.write_record(record, "deploys", "d1", "manifest.json")
    (found,) = probe.state.latest("deploys", 5)
    assert (found["id"], set(found)) == ("d1", {"id", "begun", "unreadable"})
    assert probe.state.interrupted() == []


def test_records_are_listed_oldest_first(probe: Probe) -> None:
    for number, begun in ((3, 10.0), (1, 20.0), (2, 15.5)):
        probe.state.write_record({"n": number, "begun": begun}, "deploys", f"d{number}", "manifest.json")
    assert [r["id"] for r in probe.state.latest("deploys", 20)] == ["d3", "d2", "d1"]
    assert [r["n"] for r in probe.state.latest("deploys", 2)] == [2, 1]
    assert probe.state.interrupted() == []


def test_damaged_record_does_not_hide_others(probe: Probe, tmp_path: Path) -> None:
    probe.state.write_record({"n": 1}, "boots", "b1", "boot.json")
    probe.state.write_record({"n": 2}, "boots", "b2", "boot.json")
    (tmp_path / "state/boots/b1/boot.json").write_text("{")
    (tmp_path / "state/boots/empty").mkdir()
    found = {r["id"]: r for r in state_module.state({}, probe.ctx)["boots"]}
    assert found["b2"]["n"] == 2
    assert "unreadable" in found["b1"]
    assert "empty" not in found


def test_original_is_kept_under_its_hash_and_checked(probe: Probe) -> None:
    path = Path(probe.state.keep(b"original"))
    assert path.read_bytes() == b"original"
    assert probe.state.keep(b"original") == str(path)
    assert probe.state.kept(path.name) == b"original"
    path.write_bytes(b"damaged")
    with pytest.raises(OpError, match="damaged") as caught:
        probe.state.kept(path.name)
    assert caught.value.kind == "missing"
    probe.state.keep(b"original")  # heals it
    assert probe.state.kept(path.name) == b"original"


def test_hash_cannot_leave_the_directory(probe: Probe) -> None:
    with pytest.raises(OpError) as caught:
        probe.state.kept("../lock")
    assert caught.value.kind == "precondition"


def test_journal_tail_of_a_long_journal(probe: Probe) -> None:
    probe.state.make()
    lines = [json.dumps({"n": n, "text": "x" * 90}) for n in range(5000)]
    Path(probe.state.path("journal.jsonl")).write_text("\n".join(lines) + "\n")
    probe.state.journal({"n": 5000})
    assert [entry["n"] for entry in probe.state.journal_tail(1200)] == list(range(3801, 5001))
    assert probe.state.journal_tail(0) == []


def test_journal_survives_a_writer_that_died_in_its_line(probe: Probe) -> None:
    probe.state.journal({"n": 1})
    path = Path(probe.state.path("journal.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"n": 2, "te')
    probe.state.journal({"n": 3})
    assert probe.state.journal_tail(10) == [{"n": 1}, {"unreadable": '{"n": 2, "te'}, {"n": 3}]


def _write_many(directory: str, who: int) -> None:
    store = State(directory)
    for n in range(50):
        store.journal({"who": who, "n": n, "text": "y" * 2000})


def test_two_writers_never_mix(probe: Probe) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(probe.state.dir, who)) for who in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    entries = probe.state.journal_tail(1000)
    assert len(entries) == 100
    for who in range(2):
        assert [e["n"] for e in entries if e["who"] == who] == list(range(50))


def test_the_last_purge_is_found_however_many_entries_follow_it(probe: Probe) -> None:
    """Fifty notes of benchmarks hid it, and a server that had loaded stale bytecode passed."""
    assert state_module.state({}, probe.ctx)["purged"] is None
    probe.state.journal({"op": "purge", "phase": "begin", "time": 5.0})
    probe.state.journal({"op": "purge", "phase": "begin", "time": 7.0})
    probe.state.journal({"op": "purge", "phase": "end", "time": 8.0})
    for n in range(300):
        probe.state.journal({"action": "bench", "detail": "purge " * 60, "time": 10.0 + n})
    found = state_module.state({}, probe.ctx)
    assert found["purged"] == 7.0
    assert [entry["time"] for entry in found["journal_tail"]] == [260.0 + n for n in range(50)]


def test_operations_on_the_journal(probe: Probe) -> None:
    before = time.time()
    entries = [{"a": 1, "time": 5.0}, {"a": 2}]
    assert state_module.journal_append({"entries": entries}, probe.ctx) == {"appended": 2}
    timed, now = state_module.journal_read({"limit": 2}, probe.ctx)["entries"]
    assert timed == entries[0]
    assert before <= now["time"] <= time.time()
    assert state_module.journal_append.CHANGES  # type: ignore[attr-defined]


def test_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = State(str(tmp_path / "file" / "state"))
    with pytest.raises(OpError, match="file") as caught:
        store.journal({})
    assert caught.value.kind in ("missing", "internal", "unsupported")
