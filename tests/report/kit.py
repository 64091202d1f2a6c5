"""A report on fixed data: nothing of it comes from a node."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from remote.checks import Check, Evidence
from remote.diagnose import Mode
from remote.report.files import one
from remote.report.model import Brought, Deploy, Replaced, Report, Step
from remote.report.runs import from_document, pairs

NOW_S = 1795982424.0  # 2026-11-29 20:00:24 UTC
DEPLOY_ID = "20261129T195804Z-a95e"
BEGAN_S = 1795982284.0
CONTRACT = ["embed", "in:3", "in:31"]
SIDES = {"before": (1.5, 50.0), "after": (3.375, 125.0)}
PROMPTS = ("code-parser", "lang-german", "prose-tides", "long-letters", "code-sql")


def figure(middle: float) -> dict[str, float]:
    return {"median": middle, "low": middle * 0.9, "high": middle * 1.1}


def document(side: str, known_id: str, time_s: float, **more: Any) -> dict[str, Any]:
    """A run as `inv bench` keeps it: each prompt a little better than the one before it."""
    length, speed = SIDES[side]
    return {
        "schema": 1,
        "run_id": known_id,
        "node": "blackwell",
        "time": time_s,
        "who": "ada@desk",
        "kept": f"/state/bench/blackwell/{known_id}.json",
        "saved_as": None,
        "interrupted": False,
        "load": {
            "client": "fixops",
            "requests": 5,
            "concurrency": 4,
            "max_tokens": 64,
            "prompts_sha256": "s",
        },
        "summary": {
            "accept_len": figure(length),
            "output_tok_s": figure(speed),
            "num_draft_tokens": 6,
            "num_steps": 5,
            "eagle_topk": 1,
            "sglang_version": "0.5.9",
            "histogram": [60, 25, 10, 3, 2, 0] if side == "before" else [20, 20, 15, 15, 10, 20],
            "requests": 5,
            "simulated": False,
            "definitions": {"accept_len": "completion_tokens / verify_ct of each request"},
        },
        "runs": [
            {
                "prompt": prompt,
                "prompt_sha256": f"hash-{prompt}",
                "accept_len": length + number / 100,
                "output_tok_s": speed + number,
            }
            for number, prompt in enumerate(PROMPTS)
        ],
        "wiring": {
            "contract": CONTRACT,
            "eager": CONTRACT,
            "graph": ["in:2", "in:30", "in:58"],
            "overlap": [],
        },
        "verdict": "no-baseline",
        "reasons": [],
        "guards": [],
        "expected": None,
        "baseline": None,
        "comparison": None,
        **more,
    }


def before(**more: Any) -> dict[str, Any]:
    return document("before", "20261129T195757Z-76fd", BEGAN_S - 6, **more)


def after(**more: Any) -> dict[str, Any]:
    told = {
        "verdict": "effective",
        "reasons": ["accept length 3.375 [3.037, 3.712], expected 3.4: reached"],
        "expected": {"accept_len": 3.4},
        "guards": [
            {"id": "complete", "state": "ok", "detail": "5 of 5", "spoils": []},
            {"id": "other-load", "state": "spoils", "detail": "3 strangers", "spoils": ["output_tok_s"]},
        ],
        "wiring": {"contract": CONTRACT, "eager": CONTRACT, "graph": CONTRACT, "overlap": ["embed"]},
        "baseline": {**before()["summary"], "run_id": before()["run_id"], "name": "before"},
        "comparison": {
            "accept_len": {"ratio": {"median": 2.25, "low": 2.1, "high": 2.4}, "pairs": 5, "why_not": None},
            "output_tok_s": {"ratio": {"median": 2.5, "low": 2.2, "high": 2.8}, "pairs": 5, "why_not": None},
        },
    }
    return document("after", "20261129T195824Z-2c48", BEGAN_S + 20, **{**told, **more})


CHECKS = (
    Check(
        "source.state",
        "pass",
        "ours or native",
        "ours",
        (Evidence("deepseek_v2.py:2632", "init-flag: done"),),
    ),
    Check("wiring.graph", "pass", "[embed, in:3, in:31]", "[embed, in:3, in:31]"),
    Check("gpu.holders", "unknown", "our ranks only", "nvidia-smi tells no pids", (), "inv status"),
    Check("wiring.overlap", "skip", "off", "this mode is off on this server"),
)


def mode(name: str, verdict: str, gets: str, applies: bool | None = True) -> Mode:
    return Mode(name, applies, verdict, gets, "model_runner.py:622", f"{name}: {gets} reaches the draft")


def replaced(diff_from: bytes = b"a = 1\n", to: bytes = b"a = 2\n", label: str = "sglang/m.py") -> Replaced:
    entry = {
        "named": f"/site/{label}",
        "path": f"/site/{label}",
        "original": {"kind": "file", "sha256": "b" * 64},
        "after_sha256": "a" * 64,
    }
    return one(entry, {"b" * 64: diff_from, "a" * 64: to}, "a" * 64, "/state", label)


def deploy(**more: Any) -> Deploy:
    known = Deploy(
        id=DEPLOY_ID,
        command="deploy-fix eagle3-embedding-capture",
        who="ada@desk",
        began=BEGAN_S,
        ended=BEGAN_S + 75,
        steps=(
            Step("push", "write sglang/m.py", "ok", None, BEGAN_S, 0.25),
            Step("start", "its code changes", "ok", None, BEGAN_S + 5, 70.0),
        ),
        files=(replaced(),),
        restored=None,
        later=(),
    )
    return replace(known, **more)


def brought(first: dict[str, Any] | None = None, last: dict[str, Any] | None = None) -> Brought:
    one, two = from_document(first or before()), from_document(last or after())
    return Brought(one, two, pairs(one, two), two.document["comparison"])


def report(**more: Any) -> Report:
    known = Report(
        node="blackwell",
        host="10.0.0.7",
        time=NOW_S,
        who="ada@desk",
        simulated=False,
        version="0.5.9",
        fix="eagle3-embedding-capture",
        fix_title="Capture the embedding for EAGLE-3",
        fix_why="The draft was trained on the embedding.",
        fix_state="ours",
        deploy=deploy(),
        checks=CHECKS,
        contract=tuple(CONTRACT),
        wiring={"contract": CONTRACT, "eager": CONTRACT, "graph": CONTRACT, "overlap": ["embed"]},
        modes=(
            mode("eager", "match", "[embed, in:3, in:31]"),
            mode("graph", "match", "[embed, in:3, in:31]"),
            mode("overlap", "mismatch", "[embed]", applies=False),
        ),
        answer=None,
        brought=brought(),
        missing=(),
    )
    return replace(known, **more)


class Page(HTMLParser):
    """A page as a browser takes it apart: every element with its attributes, its texts by id."""

    VOID = frozenset({"meta", "link", "br", "hr", "img"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self.by_id: dict[str, str] = {}
        self.open: list[tuple[str, str | None]] = []
        self.misnested: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.elements.append((tag, found))
        if tag not in self.VOID:
            self.open.append((tag, found.get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop()[0] != tag:
            self.misnested.append(tag)
        if tag in ("td", "th", "dt", "dd", "li", "span"):
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "style":
            self.styles.append(data)
            return
        self.texts.append(data)
        for _, id in self.open:
            if id is not None:
                self.by_id[id] = self.by_id.get(id, "") + data

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def of(self, id: str) -> str:
        return " ".join(self.by_id[id].split())

    def tags(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]
