"""One change to a healthy node (tests/pictures.py) at a time, for tests of what is said about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from remote.hypotheses import HYPOTHESES, weigh
from remote.picture import Picture
from tests import pictures
from tests.pictures import DEEPSEEK, DRAFT, GRAPH, MODEL, ROOT, config, healthy, picture

Facts = dict[str, Any]
Sources = dict[str, bytes | None]
Change = Callable[[Facts], None]
COMMUNICATOR = "sglang/srt/layers/communicator.py"
IDS = [cause.id for cause in HYPOTHESES]


def verdicts(found: Picture) -> dict[str, str]:
    return {each.id: each.verdict for each in weigh(found)}


def holding(found: Picture) -> set[str]:
    return {id for id, verdict in verdicts(found).items() if verdict == "holds"}


def node(*changes: Change, sources: Sources | None = None) -> Picture:
    facts = healthy()
    for change in changes:
        change(facts)
    return picture(facts, sources)


# -- changes -----------------------------------------------------------------------------------------


def args(**values: Any) -> Change:
    """The server's arguments as it tells them; None takes one away."""

    def change(facts: Facts) -> None:
        told = {**pictures.EFFECTIVE, **values}
        known = {name: value for name, value in told.items() if value is not ...}
        facts["http"]["server_info"]["body"] = json.dumps(known)

    return change


def silent(facts: Facts) -> None:
    """Neither the server nor its log tells the arguments."""
    facts["http"]["server_info"] = {"status": 404, "elapsed_s": 0.0, "body": ""}


def unreadable(section: str) -> Change:
    def change(facts: Facts) -> None:
        facts[section] = {"error": {"kind": "permission", "message": "not allowed"}}

    return change


def ids(*layers: int) -> Change:
    def change(facts: Facts) -> None:
        facts["configs"][DRAFT]["text"] = config(list(layers))

    return change


def draft(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        text = {**json.loads(facts["configs"][DRAFT]["text"]), **values}
        facts["configs"][DRAFT]["text"] = json.dumps({k: v for k, v in text.items() if v is not ...})

    return change


def target(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        facts["configs"][MODEL]["text"] = json.dumps(
            {**json.loads(facts["configs"][MODEL]["text"]), **values}
        )

    return change


def no_draft_config(facts: Facts) -> None:
    facts["configs"][DRAFT].update(exists=False, text=None)


def no_model_config(facts: Facts) -> None:
    facts["configs"][MODEL].update(exists=False, text=None)


def shapes(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        found = {**facts["weights"]["shapes"], **{k.replace("__", "."): v for k, v in values.items()}}
        facts["weights"]["shapes"] = {k: v for k, v in found.items() if v is not None}

    return change


def pickled(facts: Facts) -> None:
    changed = {"pytorch_model.bin": pictures.CHANGED_NS}
    facts["weights"].update(files={"pytorch_model.bin": 1_000_000}, ctimes_ns=changed, shapes=None)


def weights(**values: Any) -> Change:
    return lambda facts: facts["weights"].update(values)


def no_server(facts: Facts) -> None:
    facts["procs"].update(processes=[], listeners=[])
    facts["gpus"]["holders"] = []
    refused = {"status": None, "error": "refused", "elapsed_s": 0.0}
    facts["http"] = {name: dict(refused) for name in facts["http"]}


def launcher(**values: Any) -> Change:
    return lambda facts: facts["procs"]["processes"][0].update(values)


def everyone(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        for each in facts["procs"]["processes"]:
            each.update(values)

    return change


def stranger(facts: Facts) -> None:
    facts["procs"]["listeners"] = [{"port": 8000, "pid": None, "uid": 2000}]


def deployed_to(root: str, **more: Any) -> Change:
    """A deploy whose code went there; a later one set the configuration only."""
    code = {"id": "20261129T090000Z-aaaa", "files": [{"named": f"{root}/{DEEPSEEK}"}], **more}
    config_only = {"id": "20261129T093000Z-bbbb", "files": [{"named": DRAFT}]}
    return lambda facts: facts["state"].update(deploys=[code, config_only])


def pyc(stale: bool | None) -> Change:
    entry = {
        "path": "x.pyc",
        "kind": "timestamp",
        "why": "time and size match",
        "believed": True,
        "stale": stale,
    }

    def change(facts: Facts) -> None:
        facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["pycs"] = [entry]

    return change


def no_verification(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = json.dumps({"meta_info": {"completion_tokens": 8}})


def hangs(facts: Facts) -> None:
    facts["http"]["generate"] = {"status": None, "error": "no answer within 60 s", "elapsed_s": 60.0}


def not_sglang(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = "<html>hello</html>"


def died(facts: Facts) -> None:
    no_server(facts)
    facts["log"]["matches"] = [
        *facts["log"]["matches"][:2],
        {
            "line": 3,
            "text": "[2026-11-29 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):"
            "\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "patterns": [],
        },
    ]


# -- sources -----------------------------------------------------------------------------------------


def edited(path: str, old: bytes, new: bytes) -> Sources:
    sources = pictures.fixed()
    content = sources[path]
    assert content is not None
    assert content.count(old) >= 1
    return {**sources, path: content.replace(old, new)}


def no_residual() -> Sources:
    """Both captures in the loop, the one of a gathered state too."""
    return edited(DEEPSEEK, b"hidden_states + residual", b"hidden_states")


def three_edits() -> Sources:
    """As in the incident: the model file is patched, and nothing else."""
    return {**pictures.fixed(), GRAPH: pictures.pristine()[GRAPH]}


def scatter_allowed() -> Sources:
    return edited(
        COMMUNICATOR,
        b'            and get_global_server_args().speculative_algorithm != "EAGLE3"\n',
        b"",
    )


def not_python() -> Sources:
    return {**pictures.fixed(), DEEPSEEK: b"class (:\n"}
