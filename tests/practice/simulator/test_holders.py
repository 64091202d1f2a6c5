"""What other processes hold of a simulated GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from remote.practice.simulator.holders import Holder
from remote.practice.simulator.procs import starttime_ticks
from tests.support import wait_until

from .kit import state_of


def test_a_zombie_holds_nothing(tmp_path: Path) -> None:
    held = Holder(str(tmp_path), 0, "python")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        entry = {"pid": other.pid, "starttime_ticks": starttime_ticks(other.pid), "gpu": 0, "used_mib": 700}
        tmp_path.joinpath(f"{other.pid}.json").write_text(json.dumps(entry))
        assert held.others_mib() == 700
        assert Holder(str(tmp_path), 1, "python").others_mib() == 0
        assert other.stdin is not None
        other.stdin.close()
        wait_until(lambda: state_of(other.pid) == "Z", what="a zombie, for nobody waits for it yet")
        assert held.others_mib() == 0
    assert held.others_mib() == 0
