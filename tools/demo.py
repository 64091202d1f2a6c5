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
]
# On a crowded machine a speed may be too unsteady to judge: "inconclusive" is an answer, not a failure.
FINE = {"bench": (0, 8)}


def run(words: list[str]) -> int:
    _say(words)
    return subprocess.call([INV, *words], cwd=ROOT)


def report() -> tuple[int, str]:
    """The exit code, and what was printed: the path of the page."""
    _say(["report"])
    done = subprocess.run([INV, "report"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    return done.returncode, done.stdout


def _say(words: list[str]) -> None:
    sys.stdout.write(f"\n$ inv {' '.join(words)}\n")
    sys.stdout.flush()


def main() -> int:
    """0 when every step exits as it should. The practice node goes down again whatever happened."""
    path = ""
    try:
        for step in STEPS:
            code = run(step)
            if code not in FINE.get(step[0], (0,)):
                sys.stderr.write(f"inv {step[0]} ended with exit code {code}\n")
                return code
        code, path = report()
        return code
    finally:
        run(["practice.down"])
        sys.stdout.write(f"\n{path}")


if __name__ == "__main__":
    sys.exit(main())
