"""Put into README.md what the commands of its session really print, on a practice node of this moment.

    python tools/readme_session.py

Only the practice node's own directory is written as `.practice` and who types as `you@laptop`, and of the
diffs only what the fix adds is shown: `...` stands for SGLang's own lines.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ACTION = re.compile(r"change |changed |ok |note |-      [a-z]")
INV = str(ROOT / ".venv" / "bin" / "inv")


def run(folder: str, *words: str, code: int) -> str:
    """What the command prints on both streams; an unexpected exit code ends it all."""
    environment = {**os.environ, "FIXOPS_PRACTICE_DIR": folder, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [INV, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise SystemExit(f"inv {' '.join(words)} ended with {done.returncode}, not {code}:\n{done.stdout}")
    text = done.stdout.replace(os.path.realpath(folder), ".practice")
    text = text.replace(f"{getpass.getuser()}@{socket.gethostname()}", "you@laptop")
    return "\n".join(line.rstrip() for line in text.splitlines())


def shortened(text: str) -> str:
    """Of each diff the names of the files and the lines that the fix adds; `...` for the rest."""
    shown: list[str] = []
    in_diff = False
    for line in text.splitlines():
        in_diff = not ACTION.match(line) and (in_diff or line.startswith("--- a/"))
        foreign = in_diff and not line.startswith(("--- a/", "+"))
        if not foreign or shown[-1] != "...":
            shown.append("..." if foreign else line)
    return "\n".join(shown)


def session() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as parent:
        folder = str(Path(parent) / "practice")
        try:
            run(folder, "practice.up", code=0)
            blocks = {"status": run(folder, "status", code=0)}
            blocks["deploy-fix --yes"] = shortened(run(folder, "deploy-fix", "--yes", code=0))
            run(folder, "rollback", "--yes", code=0)
            run(folder, "deploy-fix", "--yes", "--fix", "eagle3-three-edits", code=7)
            blocks["verify"] = run(folder, "verify", code=7)
            blocks["history"] = run(folder, "history", code=0)
            return blocks
        finally:
            subprocess.run(
                [INV, "practice.down"],
                cwd=ROOT,
                env={**os.environ, "FIXOPS_PRACTICE_DIR": folder},
                check=False,
            )


def main() -> int:
    text = README.read_text(encoding="utf-8")
    for command, printed in session().items():
        block = re.compile(rf"(```\n\$ inv {re.escape(command)}\n)(?:.*?\n)??(```)", re.DOTALL)
        if len(block.findall(text)) != 1:
            raise SystemExit(f"README.md has no block, or several, for: inv {command}")
        text = block.sub(lambda match, printed=printed: match[1] + printed + "\n" + match[2], text)
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
