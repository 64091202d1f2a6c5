"""Write docs/faults.md: the table of faults, and what `inv verify` really says of each.

    python tools/faults_page.py [FAULT...]

Each fault is brought about on a practice node of its own, and healed. With names, only their entries are
made anew.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from remote import bundles, inventory, observe  # noqa: E402
from remote.checks import Check  # noqa: E402
from remote.errors import FixopsError  # noqa: E402
from remote.practice.breaking import break_node  # noqa: E402
from remote.practice.fault import CONNECT, Fault  # noqa: E402
from remote.practice.faults import FAULTS  # noqa: E402
from remote.practice.healing import heal  # noqa: E402
from remote.practice.layout import Layout  # noqa: E402
from remote.runbook import of_check  # noqa: E402
from remote.session import open_session  # noqa: E402
from remote.verify import Verified, verify  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"
HEAD = """# Faults

Every fault that `inv practice.break NAME` brings about, which checks of `inv verify` find it, what they say,
and what to do. `inv practice.heal` puts everything back.

Made by `python tools/faults_page.py` from the table in `remote/practice/*_faults.py` and from what the checks
said on a practice node with two GPUs; pids, ports, times and the node's directory are stand-ins. The tests
bring every fault about and hold this page to what is said then.
"""
# A server that does not answer on the practice node never will: nobody need wait as long as on a real one.
PATIENCE_S = 6.0
# What differs from node to node and from run to run, and what stands there instead.
MASKS = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC)?", "TIME"),
    (r"\d{8}T\d{6}Z-[0-9a-f]+", "ID"),
    (r"\bpid \d+", "pid N"),
    (r"/proc/\d+", "/proc/N"),
    (r"\b(within|after) \d+(\.\d+)? s\b", r"\1 N s"),
    (r"/python3\.\d+/", "/python3.N/"),
    (r"\.cpython-3\d+\.", ".cpython-3N."),
    (r"\.py:\d+", ".py:N"),
    (r"\bline \d+", "line N"),
    (r"SHA256:[A-Za-z0-9+/]+", "SHA256:KEY"),
    # Which rank is the first to fail is chance.
    (r"\bGPU \d+ has a total", "GPU N has a total"),
    (r"res\.text='.*'", "res.text='...'"),
    (r"[^\x20-\x7e]", "?"),
)


# Of a check that does not pass: verdict, what it observed, what to do.
Said = tuple[str, str, str]


def look(root: Path) -> Verified:
    """`inv verify` on a practice node, with less patience."""
    before = observe.HEALTH_TIMEOUT_S, observe.PROBE_TIMEOUT_S, observe.GPU_TIMEOUT_S
    observe.HEALTH_TIMEOUT_S = observe.PROBE_TIMEOUT_S = observe.GPU_TIMEOUT_S = PATIENCE_S
    try:
        (node,) = inventory.load(str(root / "inventory.yaml")).select(None)
        with open_session(node) as session:
            return verify(session, bundles.find_bundle("eagle3-embedding-capture"))
    finally:
        observe.HEALTH_TIMEOUT_S, observe.PROBE_TIMEOUT_S, observe.GPU_TIMEOUT_S = before


def masked(text: str, layout: Layout, ports: Mapping[int, str]) -> str:
    """The text without what belongs to this node and this run."""
    text = text.replace(str(layout.root), "/srv/practice")
    for port, put in ports.items():
        text = re.sub(rf"\b{port}\b", put, text)
    for pattern, put in MASKS:
        text = re.sub(pattern, put, text)
    return re.sub(rf"\b{re.escape(getpass.getuser())}\b", "USER", text)


def said(layout: Layout, ports: Mapping[int, str], checks: Sequence[Check]) -> dict[str, Said]:
    """What each check says that does not pass."""
    found: dict[str, Said] = {}
    for check in checks:
        if check.verdict in ("fail", "unknown"):
            symptom = of_check(check.id, check.observed)
            remedy = check.remedy + (f"; inv runbook {symptom}" if symptom else "")
            texts = [masked(text, layout, ports) for text in (check.observed, remedy)]
            found[check.id] = check.verdict, texts[0], texts[1]
    return found


def refusal(layout: Layout, ports: Mapping[int, str], error: FixopsError) -> dict[str, Said]:
    """The same of a fault that keeps everybody out."""
    return {
        CONNECT: (
            f"exit {int(error.exit_code)}",
            masked(str(error), layout, ports),
            masked(error.hint, layout, ports),
        )
    }


def entry(fault: Fault, found: Mapping[str, Said]) -> str:
    """A fault's part of the page: first what finds it, then what follows from it and why."""
    lines = [f"## {fault.name}", "", f"{fault.title}: {fault.does}.", ""]
    lines += ["| check | verdict | says | what to do |", "|---|---|---|---|"]
    reasons = {each.check: each.why for each in fault.also}
    for id in fault.found_by:
        verdict, text, remedy = found.get(id, ("pass", "", ""))
        lines.append(_row(f"**{id}**", verdict, f"`{_code(text)}`", _commands(remedy)))
    if reasons:
        lines += ["", "Follows from it:", ""]
        lines += [f"- {id} is `{found.get(id, ('pass',))[0]}`: {why}." for id, why in reasons.items()]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("`", "'")


def _commands(remedy: str) -> str:
    return "; ".join(f"`{_code(each)}`" if each.startswith("inv ") else each for each in remedy.split("; "))


def entries(text: str) -> dict[str, str]:
    """The page's parts by fault."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


def page(parts: Mapping[str, str]) -> str:
    """The whole page, in the table's order."""
    names = [name for name in FAULTS if name in parts]
    index = [f"- [{name}](#{name}): {FAULTS[name].title}" for name in names]
    return "\n".join([HEAD, *index, "", *(parts[name] for name in names)])


def ports_of(layout: Layout) -> dict[int, str]:
    from remote.practice import record

    there = record.read(layout)
    assert there is not None
    return {there.server_port: "8000", there.ssh.port: "2222"}


def observed(layout: Layout, fault: Fault) -> dict[str, Said]:
    """What is said while the fault is there, which is brought about and healed."""
    ports = ports_of(layout)
    break_node(layout, fault.name)
    try:
        return said(layout, ports, look(layout.root).checks)
    except FixopsError as error:
        return refusal(layout, ports, error)
    finally:
        heal(layout)


@contextmanager
def deployed() -> Iterator[Layout]:
    """A practice node with the fix on it, as the tests have one."""
    from tests.end_to_end import kit

    with tempfile.TemporaryDirectory() as parent:
        root = Path(parent).resolve() / "practice"
        os.environ["FIXOPS_PRACTICE_DIR"] = str(root)
        for node in kit.standing(root):
            node.deploy()
            yield Layout(root)


def main(names: Sequence[str]) -> int:
    parts = entries(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    with deployed() as layout:
        for name in names or FAULTS:
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
            parts[name] = entry(FAULTS[name], observed(layout, FAULTS[name]))
            PAGE.write_text(page(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
