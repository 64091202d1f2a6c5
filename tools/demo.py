"""The whole procedure on a practice node: up, deploy the fix, verify it, down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INV = str(ROOT / ".venv" / "bin" / "inv")

STEPS = [
    ["practice.up"],
    ["status"],
    ["deploy-fix", "--yes"],
    ["verify"],
]


def run(words: list[str]) -> int:
    sys.stdout.write(f"\n$ inv {' '.join(words)}\n")
    sys.stdout.flush()
    return subprocess.call([INV, *words], cwd=ROOT)


def main() -> int:
    """0 when every step exits 0. The practice node goes down again whatever happened."""
    try:
        for step in STEPS:
            code = run(step)
            if code != 0:
                sys.stderr.write(f"inv {step[0]} ended with exit code {code}\n")
                return code
        return 0
    finally:
        run(["practice.down"])


if __name__ == "__main__":
    sys.exit(main())
