"""Keeping a run: here under the XDG state directory, on the node in the journal."""

from __future__ import annotations

from dataclasses import replace

from ..errors import LockedError
from ..redact import clean_tree
from ..reporting import Reporter
from ..session import Session
from ..work import locked
from . import baselines
from .result import Bench

LOCK_WAIT_S = 5.0


def keep(session: Session, reporter: Reporter, found: Bench) -> Bench:
    """Store the run and tell the node's journal. A run that was stopped gets no name."""
    found = replace(found, saved_as=None if found.interrupted else found.saved_as)
    replaced = found.saved_as is not None and baselines.is_there(found.saved_as)
    path = baselines.keep(clean_tree(found.document(), session.secrets.clean), save_as=found.saved_as)
    if replaced:
        reporter.note(f"the baseline '{found.saved_as}' that was there is replaced")
    _journal(session, reporter, found)
    return replace(found, kept=str(path))


def _journal(session: Session, reporter: Reporter, found: Bench) -> None:
    """A finished action with its figures, as `inv history` shows it."""
    figures = found.summary.to_json() if found.summary else {}
    kept = ("accept_len", "output_tok_s", "num_draft_tokens", "sglang_version", "simulated")
    entry = {
        "time": found.time,
        "who": session.who,
        "command": "bench",
        "deploy_id": found.run_id,
        "action": "bench",
        "detail": one_line(found),
    }
    end = {"outcome": "ok", "bench": {"verdict": found.verdict.word, **{k: figures.get(k) for k in kept}}}
    entries = [{**entry, "phase": "begin"}, {**entry, "phase": "end", **end}]
    try:
        with locked(session, "bench", reporter, seen=None, wait_s=LOCK_WAIT_S):
            session.request("journal_append", {"entries": entries})
    except LockedError as error:
        reporter.note(f"not in the node's journal: {error.message}")


def one_line(found: Bench) -> str:
    """The run in one line."""
    figures = found.summary
    if figures is None:
        return found.verdict.word
    parts: list[str] = [found.verdict.word]
    if figures.accept_len.median is not None:
        parts.append(f"accept length {figures.accept_len.median:.2f}")
    if figures.output_tok_s.median is not None:
        parts.append(f"{figures.output_tok_s.median:.1f} output tok/s per request")
    if found.saved_as:
        parts.append(f"saved as {found.saved_as}")
    return ", ".join(parts)
