"""What the toolkit costs, each figure beside something familiar measured in the same run (`make bench`).

Makes a practice node of its own in a temporary folder, and takes it down again. Times of a shared machine
mean little by themselves: read the ratios.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from remote import bundles, inventory, verify  # noqa: E402
from remote.logs import Asked, of_file  # noqa: E402
from remote.session import open_session  # noqa: E402
from remote.sglang import patterns  # noqa: E402

INV = str(ROOT / ".venv" / "bin" / "inv")
TIMES = 5
LOG_MB = 200


def median_s(run: Callable[[], object], times: int = TIMES) -> float:
    """Wall seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def command(*words: str, ok: int = 0, more: Mapping[str, str] | None = None) -> None:
    """Run it, with `more` in its environment. SystemExit unless its exit code is `ok`."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != ok:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def row(what: str, seconds: float, beside: str, other_s: float) -> None:
    sys.stdout.write(f"{what:52} {seconds:8.3f} s   {seconds / other_s:6.2f} x {beside} ({other_s:.3f} s)\n")


def busy_log(path: Path) -> None:
    """A server's log after days under load: nearly all of it decode, prefill and access lines."""
    lines = []
    for n in range(10_000):
        time_ = f"[2026-11-29 10:{n // 60 % 60:02d}:{n % 60:02d}"
        lines += [
            f"{time_} TP0] Decode batch, #running-req: {n % 64}, #token: {n}, token usage: 0.{n % 90 + 10}, "
            f"accept len: 3.{n % 10}0, accept rate: 0.{n % 90 + 10}, cuda graph: True, "
            f"gen throughput (token/s): {1000 + n % 997}.50, #queue-req: 0, \n",
            f"{time_} TP0] Prefill batch, #new-seq: 1, #new-token: 812, #cached-token: 0, token usage: 0.10, "
            f"#running-req: {n % 5}, #queue-req: 0, \n",
            f'{time_}] INFO:     10.0.0.1:{n % 60000} - "POST /generate HTTP/1.1" 200 OK\n',
        ]
    block = "".join(lines).encode()
    with path.open("wb") as file:
        file.write(b"[2026-11-29 09:59:00] server_args=ServerArgs(model_path='/m', port=8000)\n")
        for _ in range(LOG_MB * 1_000_000 // len(block)):
            file.write(block)


def logs(folder: Path) -> None:
    path = folder / "server.log"
    busy_log(path)
    size_mb = path.stat().st_size / 1e6
    ours_s = median_s(lambda: of_file(path, Asked()), 3)
    either = "|".join((*patterns.RARE, *patterns.DECODE))
    grep_s = median_s(lambda: command("grep", "-acP", either, str(path), more={"LC_ALL": "C"}), 3)
    row(
        f"inv logs of {size_mb:.0f} MB, {size_mb / ours_s:.0f} MB/s",
        ours_s,
        "grep -cP, same patterns",
        grep_s,
    )
    path.unlink()


def listing(folder: Path) -> None:
    (folder / "tasks.py").write_text("from invoke import task\n\n@task\ndef nothing(c):\n    pass\n")
    ours_s = median_s(lambda: command(INV, "--list"))
    row(
        "inv --list",
        ours_s,
        "that of one empty task",
        median_s(lambda: command(INV, "-r", str(folder), "--list")),
    )


@contextmanager
def practice(folder: Path) -> Iterator[dict[str, str]]:
    place = {"FIXOPS_PRACTICE_DIR": str(folder / "practice")}
    command(INV, "practice.up", "--gpus", "2", more=place)
    try:
        yield place
    finally:
        command(INV, "practice.down", more=place)


def node_cpu_s(path: str) -> float:
    """CPU of the helper for one verification: its interpreter's start included, nvidia-smi left out."""
    (node,) = inventory.load(path).select(None)
    with open_session(node) as session:
        verify.verify(session, bundles.find_bundle("eagle3-embedding-capture"))
        stat = Path(f"/proc/{session.helper.hello['pid']}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def node(folder: Path) -> None:
    with practice(folder) as place:
        entry = folder / "practice" / "inventory.yaml"
        ssh = inventory.load(str(entry)).select(None)[0]
        login = ("ssh", "-F", "none", "-i", str(ssh.identity_file), "-p", str(ssh.port))
        options = ("-o", f"UserKnownHostsFile={ssh.known_hosts}", "-o", "BatchMode=yes")
        ssh_s = median_s(lambda: command(*login, *options, f"{ssh.user}@{ssh.host}", "true"))
        row("inv verify", median_s(lambda: command(INV, "verify", ok=7, more=place)), "ssh HOST true", ssh_s)
        command(INV, "deploy-fix", "--yes", more=place)
        row(
            "inv verify, all proven",
            median_s(lambda: command(INV, "verify", more=place)),
            "ssh HOST true",
            ssh_s,
        )
        again_s = median_s(lambda: command(INV, "deploy-fix", "--yes", more=place))
        row("inv deploy-fix with nothing to do", again_s, "ssh HOST true", ssh_s)
        python_s = median_s(lambda: command(sys.executable, "-I", "-S", "-c", "pass"))
        row("CPU of a verification on the node", node_cpu_s(str(entry)), "python3 -c pass", python_s)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fixops-benchmark-") as name:
        folder = Path(name)
        logs(folder)
        listing(folder)
        node(folder)


if __name__ == "__main__":
    main()
