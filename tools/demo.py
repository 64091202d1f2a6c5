"""The whole procedure on a practice node: measure, deploy the fix, verify, measure again, report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INV = str(ROOT / ".venv" / "bin" / "inv")

# Every prompt once, with short answers: enough to tell 1.5 from 3.4 in a few seconds.
LOAD = ["--max-tokens", "128", "--concurrency", "8"]
STEPS = [
    ["practice.up"],
    ["status"],
    ["bench", "--anyway", "--save-as", "demo-before", *LOAD],
    ["deploy-fix", "--yes"],
    ["verify"],
    ["bench", "--baseline", "demo-before", *LOAD],
    ["report"],
]
# On a crowded machine a speed may be too unsteady to judge: "inconclusive" is an answer, not a failure.
FINE = {"bench": (0, 8)}


def run(words: list[str]) -> tuple[int, str]:
    """The command's exit code, and the last line that it printed."""
    sys.stdout.write(f"\n$ inv {' '.join(words)}\n")
    sys.stdout.flush()
    last = ""
    with subprocess.Popen([INV, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last = line
    return process.returncode, last


def main() -> int:
    """0 when every step exits as it should. The practice node goes down again whatever happened."""
    last = ""
    try:
        for step in STEPS:
            code, last = run(step)
            if code not in FINE.get(step[0], (0,)):
                sys.stderr.write(f"inv {step[0]} ended with exit code {code}\n")
                return code
        return 0
    finally:
        run(["practice.down"])
        sys.stdout.write(f"\n{last}")


if __name__ == "__main__":
    sys.exit(main())
