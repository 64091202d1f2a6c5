"""Start processes that outlive the command that starts them, as a login shell's `nohup ... &` leaves them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from remote.errors import RefusedError

# A process of its own that ends at once: what it started is re-parented to init, in a session of its own.
_MIDDLE = """
import json, os, subprocess, sys
pids = []
for spec in json.load(sys.stdin):
    with open(spec["log"], "ab") as log:
        pids.append(subprocess.Popen(spec["argv"], env=spec["env"], cwd=spec["cwd"], start_new_session=True,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid)
print(json.dumps(pids), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Spec:
    """One process: standard output and error are appended to `log`; `env` is the whole environment."""

    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    log: str


def detached(specs: Sequence[Spec]) -> list[int]:
    """The pids of the started processes, in order. RefusedError if one could not be executed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _MIDDLE],
        input=json.dumps([asdict(spec) for spec in specs]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise RefusedError(f"a process of the practice node could not be started: {''.join(last)}")
    return [int(pid) for pid in json.loads(done.stdout)]
