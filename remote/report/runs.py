"""What it brought: the benchmark before a deploy and the one after it, of those that were kept.

Which runs there were is told by the node's journal; all of a run (prompts, guards, wiring) is only in the
file that `inv bench` kept on the machine where it was started. Of a colleague's run the figures are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..bench import stored, summary
from ..bench.repeats import by_prompt, means
from .model import Brought, Pair, PromptFigures, Run

Entry = Mapping[str, Any]

JOURNAL = "the node's journal"
# A deploy's id tells whole seconds: a run that ended within its first second was measured before it.
SECOND = 1.0


def kept(folder: Path) -> list[dict[str, Any]]:
    """The runs of one node in bench/NODE; a damaged file is no run."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = stored.load(path)
            stored.Run.model_validate(document)
        except (OSError, ValueError):
            continue
        found.append({**document, "kept": str(path)})
    return found


def all_runs(journal: Sequence[Entry], documents: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Every run in the journal, the oldest first, as whole as it is known. Stopped runs are left out, and
    those of SGLang's own client, which knows no accept length."""
    by_id = {str(document.get("run_id")): document for document in documents}
    found = []
    for entry in journal:
        if entry.get("command") != "bench" or entry.get("phase") != "end":
            continue
        document = by_id.get(str(entry.get("deploy_id")))
        if document is not None:
            client = (document.get("load") or {}).get("client")
            if not document.get("interrupted") and client != "sglang":
                found.append(from_document(document))
        elif isinstance(entry.get("bench"), Mapping):
            with suppress(ValueError):  # a damaged entry is no run either
                found.append(_from_journal(entry))
    return sorted(found, key=lambda run: run.time)


def from_document(document: Mapping[str, Any]) -> Run:
    return Run(
        run_id=str(document.get("run_id")),
        name=document.get("saved_as"),
        time=float(document.get("time") or 0.0),
        who=str(document.get("who") or "unknown"),
        source=str(document.get("kept") or "unknown"),
        summary=summary.from_json(document["summary"]),
        prompts=_prompts(stored.Run.model_validate(document).runs or []),
        wiring=document.get("wiring"),
        load=_load(document),
        document=document,
    )


def _from_journal(entry: Entry) -> Run:
    figures = entry["bench"]
    return Run(
        run_id=str(entry.get("deploy_id")),
        name=None,
        time=float(entry.get("time") or 0.0),
        who=str(entry.get("who") or "unknown"),
        source=JOURNAL,
        summary=summary.from_json(figures),
        prompts={},
        wiring=None,
        load=stored.Asked(),
        document={"verdict": figures.get("verdict")},
    )


def _of_baseline(after: Run) -> Run | None:
    """The baseline that `after` was held against, where the run itself is no run of this node."""
    document = after.document.get("baseline")
    if not isinstance(document, Mapping):
        return None
    return Run(
        run_id=str(document.get("run_id") or document.get("name")),
        name=str(document.get("name")),
        time=float(document.get("time") or 0.0),
        who="unknown",
        source=f"the baseline '{document.get('name')}'",
        summary=summary.from_json(document),
        prompts={},
        wiring=None,
        load=_load(document),
        document=document,
    )


def _load(document: Mapping[str, Any]) -> stored.Asked:
    return stored.Asked.model_validate(document.get("load") or {})


def _prompts(answers: Sequence[stored.Answer]) -> dict[str, PromptFigures]:
    lengths, speeds = (means(answers, attrgetter(name)) for name in ("accept_len", "output_tok_s"))
    return {
        sha256: PromptFigures(str(group[0].prompt), lengths.get(sha256), speeds.get(sha256))
        for sha256, group in by_prompt(answers).items()
    }


def brought(runs: Sequence[Run], start: float | None, end: float | None) -> Brought:
    """The last run within the deploy's time, and the run it was held against if that was measured before the
    deploy, else the last one before it. Without a deploy (`start` None) every run is one before."""
    before = [run for run in runs if start is None or run.time < start + SECOND]
    within = [
        run
        for run in runs
        if start is not None and run.time >= start + SECOND and (end is None or run.time < end)
    ]
    after = within[-1] if within else None
    against = (after.document.get("baseline") or {}).get("run_id") if after else None
    first = next((run for run in before if against is not None and run.run_id == against), None)
    if first is None:
        first = before[-1] if before else None
    if first is None and after is not None:
        first = _of_baseline(after)
    return Brought(first, after, pairs(first, after), _comparison(first, after))


def pairs(before: Run | None, after: Run | None) -> tuple[Pair, ...]:
    """The prompts that both answered, in the order of the run after."""
    if before is None or after is None:
        return ()
    found = []
    for sha256, now in after.prompts.items():
        then = before.prompts.get(sha256)
        if then is not None:
            lengths, speeds = (then.accept_len, now.accept_len), (then.output_tok_s, now.output_tok_s)
            found.append(Pair(now.prompt, _both(*lengths), _both(*speeds)))
    return tuple(found)


def _both(before: float | None, after: float | None) -> tuple[float, float] | None:
    return None if before is None or after is None else (before, after)


def _comparison(before: Run | None, after: Run | None) -> Mapping[str, Any] | None:
    """What `inv bench` said of the two; nothing where it held `after` against something else."""
    if before is None or after is None:
        return None
    baseline, found = after.document.get("baseline"), after.document.get("comparison")
    if not isinstance(baseline, Mapping) or not isinstance(found, Mapping):
        return None
    same = before.run_id in (str(baseline.get("run_id")), str(baseline.get("name")))
    return found if same else None
