"""Reading a node: one request for the facts, one more for contents that were never seen before."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from . import bundles, fixes, ownership, secrets, wiring
from .cache import Contents
from .intent import draft_config_path, endpoint, model_config_path, our_gpus, wanted_args
from .inventory import Node, command
from .picture import ConfigFile, Facts, Picture
from .redact import clean_tree, printable
from .running import booted, came_up
from .session import Session
from .sglang import boots, metrics, patterns
from .sglang.modelconfig import architectures, json_object, language

PACKAGE = "sglang"
# Files of any other architecture are fetched once the model's config.json has told which it is.
USUAL_ARCHITECTURE = "KimiK25ForConditionalGeneration"
# /health of 0.5.9 waits up to 20 s for the scheduler (entrypoints/http_server.py): wait a little longer.
HEALTH_TIMEOUT_S = 25.0
# Longer than the health check, and no longer: whoever asks waits for a hung server.
PROBE_TIMEOUT_S = 30.0
OBSERVE_TIMEOUT_S = 120.0
GPU_TIMEOUT_S = 20.0
# What other people's processes and the GPU tool say of themselves is shown on a terminal.
STRANGERS = ("procs", "gpus")
# /server_info tells of each DP rank: 37 kB for one (capture of 0.5.23).
MAX_REPLY_BYTES = 1024 * 1024
MAX_SOURCE_BYTES = 4 * 1024 * 1024
# Read as evidence of a condition (remote/hypotheses/scatter.py), and kept from the wiring engine, which
# knows the attention's context by what it is for.
EVIDENCE_ONLY = ("sglang/srt/layers/layer_boundary/adapters/attention.py",)


def generate_request(headers: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """One real generation: what proves that the scheduler, its ranks and the detokenizer work."""
    body = {
        "text": "The capital of France is",
        "sampling_params": {"temperature": 0, "max_new_tokens": 8},
    }
    return {
        "name": "generate",
        "method": "POST",
        "path": "/generate",
        "body": json.dumps(body),
        "headers": headers,
        "timeout_s": timeout_s,
    }


def sections(node: Node, bundle: bundles.Bundle, *, probe: bool) -> dict[str, Any]:
    """The parameters of one observation. `probe` also asks the server over HTTP."""
    server = node.server
    env = secrets.environment_of(server, os.environ)
    sources = wanted_sources(bundle)
    configs = [path for path in (draft_config_path(server), model_config_path(server)) if path]
    wanted: dict[str, Any] = {
        "node": {},
        "package": {"name": PACKAGE, "env": env, "cwd": server.cwd},
        "files": {"root": None, "paths": sources},
        "configs": {"paths": configs},
        "bytecode": {"root": None, "files": bundle_files(bundle), "env": env},
        "procs": procs(node),
        "gpus": {"timeout_s": GPU_TIMEOUT_S},
        "log": {
            "path": server.log,
            # Not the decode lines: no claim is about them.
            **patterns.wanted(
                ["server_args=", *patterns.STAGES, *patterns.FAILURES],
                [bundle.marker] if bundle.marker else [],
            ),
            "boot": "last",
            "tail_bytes": 0,
        },
        "state": {},
        "startable": {"program": command(node)[0], "env": env, "cwd": server.cwd, "log": server.log},
    }
    if server.draft_model_path:
        wanted["weights"] = {"directory": server.draft_model_path}
    if probe:
        key = secrets.headers(server, os.environ)
        get = {"method": "GET", "body": None, "headers": key, "max_bytes": MAX_REPLY_BYTES}
        wanted["http"] = {
            **endpoint(server),
            "requests": [
                {"name": "health", "path": "/health", "timeout_s": HEALTH_TIMEOUT_S, **get},
                *(
                    {"name": name, "path": f"/{name}", "timeout_s": HEALTH_TIMEOUT_S, **get}
                    for name in metrics.INFO_NAMES
                ),
                generate_request(key, PROBE_TIMEOUT_S),
            ],
        }
    return wanted


def procs(node: Node) -> dict[str, Any]:
    return {"port": node.server.port, "command": node.server.command}


def bundle_files(bundle: bundles.Bundle) -> list[str]:
    """Every file that the bundle edits in any version."""
    return sorted({entry.path for entry in bundle.spec.files})


def wanted_sources(bundle: bundles.Bundle) -> list[str]:
    """Every file whose text planning or the wiring may need, in any version: absent ones are no error."""
    needed = wiring.needed_files(None, USUAL_ARCHITECTURE)
    return sorted({*bundle_files(bundle), *needed, *EVIDENCE_ONLY})


def observe(
    session: Session,
    bundle: bundles.Bundle,
    *,
    probe: bool = True,
    meanwhile: Callable[[], None] = lambda: None,
) -> Picture:
    """Read the node. A section that cannot be read is part of the picture, not an exception.

    `meanwhile` is done while the node reads; when it raises, the reading is given up. A server that came up
    while it was read is read once more: half of what is known of it would be of a server that starts.
    """
    found = _look(session, bundle, probe=probe, meanwhile=meanwhile)
    return _look(session, bundle, probe=probe, meanwhile=lambda: None) if came_up(found) else found


def _look(session: Session, bundle: bundles.Bundle, *, probe: bool, meanwhile: Callable[[], None]) -> Picture:
    node = session.node
    wanted = {"sections": sections(node, bundle, probe=probe)}
    reading = session.submit("observe", wanted, timeout_s=OBSERVE_TIMEOUT_S)
    try:
        meanwhile()
    except BaseException:
        reading.cancel()
        raise
    facts = _printable(session.result(reading))
    files = {} if "error" in facts.get("files", {"error": 0}) else facts["files"]
    more = _other_sources(node, facts, files)
    contents, compile_errors = _contents(session, files, bundle_files(bundle), more)
    picture = assemble(node, bundle, facts, contents, compile_errors, uid=session.helper.hello["uid"])
    logged = [args for args in (picture.boot and picture.boot.args, picture.effective) if args]
    session.secrets.learn(secrets.on_node(node, facts, logged))
    return picture


def owners_now(session: Session, picture: Picture) -> ownership.Ownership | None:
    """Whose the node's processes are by now. Who holds its GPUs is taken from the picture."""
    node = session.node
    facts = session.request("observe", {"sections": {"procs": procs(node)}}, timeout_s=OBSERVE_TIMEOUT_S)
    facts = {**picture.facts, **_printable(facts)}
    session.secrets.learn(secrets.on_node(node, facts, []))
    return _ownership(node, facts, session.helper.hello["uid"])


def _printable(facts: Facts) -> dict[str, Any]:
    return {
        name: clean_tree(found, printable) if name in STRANGERS else found for name, found in facts.items()
    }


def _other_sources(node: Node, facts: Facts, files: Mapping[str, Facts]) -> dict[str, str]:
    """Absolute by relative path: what the wiring of this model needs and was not asked for at first,
    because only its config.json tells which architecture it is."""
    imported = (facts.get("package") or {}).get("imported") or {}
    named = architectures(_model_config(node, facts))
    if not imported.get("root") or not named:
        return {}
    needed = wiring.needed_files(imported.get("version"), named[0])
    return {path: f"{imported['root']}/{path}" for path in needed if path not in files}


def _contents(
    session: Session, files: Mapping[str, Facts], targets: list[str], more: Mapping[str, str]
) -> tuple[dict[str, bytes | None], dict[str, Any]]:
    """The text of each file by relative path, and what the node's compiler says of the bundle's files.

    Both depend on the content alone (and the node's Python): what is known by hash is not asked again.
    """
    cache, python = Contents(), str(session.helper.hello["version"])
    contents: dict[str, bytes | None] = {}
    verdicts: dict[str, Any] = {}
    fetch, judge = [], []
    for path, fact in files.items():
        if not fact.get("exists"):
            if "error" not in fact:
                contents[path] = None
            continue
        contents[path] = cache.get(fact["sha256"])
        if contents[path] is None:
            fetch.append(path)
        if path in targets:
            verdicts[path] = cache.note(fact["sha256"], f"compiles.{python}")
            if verdicts[path] is None:
                judge.append(path)
    if fetch or judge or more:
        # Both at once: two requests in one round trip.
        places = {**{path: str(files[path]["real_path"]) for path in fetch}, **more}
        wanted = {"paths": list(places.values()), "max_bytes": MAX_SOURCE_BYTES}
        reading = session.submit("read_files", wanted)
        judging = session.submit("compile_files", {"paths": [files[path]["real_path"] for path in judge]})
        texts, answers = session.result(reading), session.result(judging)
        for path, place in places.items():
            found = texts[place]
            contents[path] = zlib.decompress(base64.b64decode(found["z"])) if "z" in found else None
            if contents[path] is not None:
                cache.put(contents[path] or b"")
        for path in judge:
            verdicts[path] = answers[files[path]["real_path"]]
            if verdicts[path]["ok"] is not None:
                cache.put_note(files[path]["sha256"], f"compiles.{python}", verdicts[path])
    return contents, verdicts


def assemble(
    node: Node,
    bundle: bundles.Bundle,
    facts: Facts,
    contents: Mapping[str, bytes | None],
    compile_errors: Mapping[str, Any],
    *,
    uid: int,
) -> Picture:
    """What follows from the facts. Pure: the same facts give the same picture."""
    imported = (facts.get("package") or {}).get("imported") or {}
    version, root = imported.get("version"), imported.get("root")
    fix = None
    problem = unreadable(facts, contents)
    if version is not None and root is not None and problem is None:
        record = {
            path: fact.get("record_sha256")
            for path, fact in facts.get("files", {}).items()
            if isinstance(fact, Mapping)
        }
        fix = fixes.evaluate(bundle, version, contents, record)
    config = _config_file(node, bundle, version, facts)
    model_config = _model_config(node, facts)
    effective = metrics.told(facts.get("http", {}))
    backend = str((effective or wanted_args(node.server)).get("moe_a2a_backend") or "none")
    return Picture(
        node=node,
        bundle=bundle,
        facts=facts,
        version=version,
        root=root,
        problem=problem,
        sources=contents,
        compile_errors=compile_errors,
        fix=fix,
        config=config,
        model_config=model_config,
        wiring=wiring_of(version, contents, model_config, config.text if config else None, backend),
        meant=wiring_of(version, contents, model_config, _meant_text(config), backend),
        ownership=_ownership(node, facts, uid),
        boot=_last_boot(facts),
        effective=effective,
    )


def unreadable(facts: Facts, contents: Mapping[str, bytes | None]) -> str | None:
    """Why the fix cannot be held against the node's files: no package, or a file that cannot be read."""
    for name in ("package", "files"):
        if "error" in facts.get(name, {}):
            return str(facts[name]["error"]["message"])
    for path, fact in facts.get("files", {}).items():
        if "error" in fact:
            return str(fact["error"]["message"])
        if fact.get("exists") and contents.get(path) is None:
            return f"{fact['real_path']} could not be read"
    return None


def _config_file(node: Node, bundle: bundles.Bundle, version: str | None, facts: Facts) -> ConfigFile | None:
    path = draft_config_path(node.server)
    if path is None:
        return None
    found = facts.get("configs", {}).get(path) or {}
    text = found["text"].encode() if isinstance(found.get("text"), str) else None
    state = fixes.evaluate_config(bundle, text, version) if text is not None and version else None
    return ConfigFile(path, found, text, state)


def _meant_text(config: ConfigFile | None) -> bytes | None:
    """The draft's configuration as the bundle wants it."""
    if config is None or config.state is None or config.state.state == "misfit":
        return None
    return config.state.new_text or config.text


def _model_config(node: Node, facts: Facts) -> Mapping[str, Any] | None:
    found = facts.get("configs", {}).get(model_config_path(node.server)) or {}
    return json_object(found.get("text"))


def wiring_of(
    version: str | None,
    contents: Mapping[str, bytes | None],
    model_config: Mapping[str, Any] | None,
    draft_text: bytes | None,
    moe_a2a_backend: str = "none",
) -> wiring.Wiring | None:
    """What reaches the draft with these files and this draft config.json; None where one cannot be read.

    `moe_a2a_backend` is the server's argument: the capture has a branch of its own for deepep.
    """
    draft = json_object(draft_text)
    if version is None or model_config is None or draft is None:
        return None
    named, values = architectures(model_config), language(model_config)
    layers, dense = values.get("num_hidden_layers"), values.get("first_k_dense_replace") or 0
    if not named or not isinstance(layers, int) or not isinstance(dense, int):
        return None
    present = tuple(
        (path, text)
        for path, text in sorted(contents.items())
        if text is not None and path not in EVIDENCE_ONLY
    )
    return _compute(present, version, named[0], layers, dense, json.dumps(draft), moe_a2a_backend)


@lru_cache(maxsize=16)
def _compute(
    sources: tuple[tuple[str, bytes], ...],
    version: str,
    architecture: str,
    num_layers: int,
    first_k_dense_replace: int,
    draft_config: str,
    moe_a2a_backend: str,
) -> wiring.Wiring:
    """Remembered: the nodes of a group have the same files, and an observation asks twice."""
    return wiring.compute(
        {path: text.decode("utf-8", "replace") for path, text in sources},
        version=version,
        architecture=architecture,
        num_layers=num_layers,
        first_k_dense_replace=first_k_dense_replace,
        draft_config=json.loads(draft_config),
        server_args={"moe_a2a_backend": moe_a2a_backend},
    )


def _ownership(node: Node, facts: Facts, uid: int) -> ownership.Ownership | None:
    procs, gpus = facts.get("procs", {}), facts.get("gpus", {})
    if "error" in procs:
        return None
    return ownership.assess(
        procs,
        {} if "error" in gpus else gpus,
        port=node.server.port,
        our_uid=uid,
        our_gpus=our_gpus(node),
        booted=booted(node, facts),
    )


def _last_boot(facts: Facts) -> boots.Boot | None:
    log = facts.get("log", {})
    if "error" in log or not log.get("exists"):
        return None
    found = boots.read_lines([(each["line"], each["text"]) for each in log["matches"]])
    return found[-1] if found else None
