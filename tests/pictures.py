"""A healthy node as facts, for tests of judging and planning: change one thing, and see what is said.

The sources are SGLang 0.5.9's own with the fix applied; the other facts have the shapes in which
remote/node reports them.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from remote import bundles, fixes
from remote.inventory import Node, ServerEntry
from remote.observe import assemble, bundle_files, wanted_sources
from remote.picture import Picture
from tests.wheels import record_sha256, wheel_source

VERSION = "0.5.9"
ROOT = "/opt/sglang/lib/python3.11/site-packages"
PYTHON = "/opt/sglang/bin/python"
EXE = "/usr/bin/python3.11"
INTERPRETER = {"program": PYTHON, "environment": "/opt/sglang", "file": EXE}
LOG = "/logs/server.log"
DRAFT = "/data/draft/config.json"
MODEL = "/models/kimi/config.json"
BOOT_LOG = "/logs/server.20261129T100000Z-aaaa.log"
BUNDLE = bundles.find_bundle("eagle3-embedding-capture")
UID = 1000
DEEPSEEK = "sglang/srt/models/deepseek_v2.py"
GRAPH = "sglang/srt/model_executor/cuda_graph_runner.py"
STARTED_S = 1_795_946_390.0  # ten seconds before LOG_LINES begin, which are in UTC
CHANGED_NS = int((STARTED_S - 60) * 1e9)
RANKS = 2

NODE = Node(
    name="blackwell",
    host="blackwell",
    user=None,
    port=None,
    gateway=None,
    identity_file=None,
    known_hosts=None,
    ssh_config=None,
    python=PYTHON,
    sudo=False,
    state_dir=None,
    server_name="kimi",
    server=ServerEntry.model_validate(
        {
            "model_path": "/models/kimi",
            "draft_model_path": "/data/draft",
            "port": 8000,
            "log": LOG,
            "args": {
                "host": "0.0.0.0",
                "tp-size": RANKS,
                "speculative-algorithm": "EAGLE3",
                "speculative-eagle-topk": 1,
                "speculative-num-steps": 5,
                "speculative-num-draft-tokens": 6,
            },
        }
    ),
)


@lru_cache(maxsize=32)
def released(version: str) -> dict[str, bytes | None]:
    """The files of a release that an observation reads, None where it has none."""
    found: dict[str, bytes | None] = {}
    for path in wanted_sources(BUNDLE):
        try:
            found[path] = wheel_source(version, path)
        except KeyError:
            found[path] = None
    return found


def pristine() -> dict[str, bytes | None]:
    return released(VERSION)


@lru_cache(maxsize=4)
def fixed() -> dict[str, bytes | None]:
    """The sources with the whole fix."""
    sources = dict(pristine())
    state = fixes.evaluate(BUNDLE, VERSION, sources, {path: record_sha256(VERSION, path) for path in sources})
    sources.update({file.path: file.new_text for file in state.files if file.new_text is not None})
    return sources


def config(ids: list[int]) -> str:
    draft = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
    return json.dumps({**draft, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}, indent=2) + "\n"


def _file(path: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {"exists": False, "sha256": None, "real_path": path, "symlink": None, "ctime_ns": None}
    return {
        "exists": True,
        "sha256": hashlib.sha256(content).hexdigest(),
        "real_path": path,
        "symlink": None,
        "ctime_ns": CHANGED_NS,
    }


def process(pid: int, title: str, role: str | None, **more: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "starttime_ticks": pid,
        "start_time": STARTED_S,
        "ppid": 100,
        "sid": 100,
        "uid": UID,
        "user": "ops",
        "state": "S",
        "title": title,
        "argv": title.split(),
        "role": role,
        "exe": EXE,
        "interpreter": None,
        "cwd": "/home/ops",
        "env": {},
        "log_fds": [BOOT_LOG],
        **more,
    }


_MARK = "EAGLE-3 capture: draft input [embed, in:3, in:31] (ids [-1, 2, 30])"
LOG_LINES = [
    "[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/models/kimi', tp_size=2, port=8000)",
    "[2026-11-29 10:00:01 TP0] Load weight begin. avail mem=90.00 GB",
    f"[2026-11-29 10:00:02 TP0] {_MARK}",
    f"[2026-11-29 10:00:02 TP1] {_MARK}",
    "[2026-11-29 10:00:03] The server is fired up and ready to roll!",
]
EFFECTIVE = {
    "model_path": "/models/kimi",
    "speculative_draft_model_path": "/data/draft",
    "port": 8000,
    "host": "0.0.0.0",
    "tp_size": RANKS,
    "speculative_algorithm": "EAGLE3",
    "speculative_eagle_topk": 1,
    "speculative_num_steps": 5,
    "speculative_num_draft_tokens": 6,
    "disable_cuda_graph": False,
    "enable_two_batch_overlap": False,
}


def healthy() -> dict[str, Any]:
    """Facts of a node on which everything is as meant."""
    command = f"{PYTHON} -m sglang.launch_server --port 8000"
    launcher = process(100, command, "launcher", ppid=1, interpreter=INTERPRETER)
    ranks = [process(101 + n, f"sglang::scheduler_TP{n}", "scheduler") for n in range(RANKS)]
    answer = {"meta_info": {"completion_tokens": 8, "spec_verify_ct": 3}}
    return {
        "node": {"boot_id": "kernel-1"},
        "package": {
            "imported": {
                "origin": f"{ROOT}/sglang/__init__.py",
                "root": ROOT,
                "kind": "wheel",
                "version": VERSION,
            },
            "copies": [],
        },
        "configs": {
            DRAFT: {**_file(DRAFT, config([-1, 2, 30]).encode()), "text": config([-1, 2, 30])},
            MODEL: {
                **_file(MODEL, b""),
                "text": json.dumps(
                    {
                        "architectures": ["DeepseekV3ForCausalLM"],
                        "num_hidden_layers": 61,
                        "first_k_dense_replace": 1,
                        "hidden_size": 7168,
                    }
                ),
            },
        },
        "bytecode": {f"{ROOT}/{DEEPSEEK}": {"pycs": [], "shadow": None}},
        "procs": {
            "processes": [launcher, *ranks],
            "listeners": [{"port": 8000, "pid": 100, "uid": UID}],
            "self": {"pid": 950, "ancestors": [940], "exe": EXE, "interpreter": INTERPRETER},
        },
        "gpus": {
            "available": True,
            "why": None,
            "holders_known": True,
            "gpus": [{"index": n, "memory_used_mib": 80000, "memory_total_mib": 97887} for n in range(RANKS)],
            "holders": [
                {"gpu_index": n, "pid": 101 + n, "name": f"sglang::scheduler_TP{n}", "used_mib": 79990}
                for n in range(RANKS)
            ],
        },
        "log": {
            "exists": True,
            "path": LOG,
            "real_path": BOOT_LOG,
            "boots": [{"offset": 0, "line": 1, "text_head": LOG_LINES[0]}],
            "matches": [
                {"line": number, "text": text, "patterns": []}
                for number, text in enumerate(LOG_LINES, start=1)
            ],
        },
        "startable": {"problems": []},
        "weights": {
            "exists": True,
            "files": {"config.json": 900, "model.safetensors": 1_000_000},
            "ctimes_ns": {"config.json": CHANGED_NS, "model.safetensors": CHANGED_NS},
            "shapes": {"fc.weight": [7168, 3 * 7168], "lm_head.weight": [32000, 7168], "d2t": [32000]},
            "shards": [],
            "problem": None,
        },
        "state": {"exists": False, "lock": None, "deploys": [], "boots": [], "journal_tail": []},
        "http": {
            "health": {"status": 200, "elapsed_s": 1.0, "body": ""},
            "server_info": {"status": 200, "elapsed_s": 0.1, "body": json.dumps(EFFECTIVE)},
            "generate": {"status": 200, "elapsed_s": 0.2, "body": json.dumps(answer)},
        },
    }


def picture(facts: dict[str, Any] | None = None, sources: dict[str, bytes | None] | None = None) -> Picture:
    """The picture of a node with these facts; by default a healthy one. `sources` are the node's files."""
    known = copy.deepcopy(facts if facts is not None else healthy())
    contents = dict(sources if sources is not None else fixed())
    if "files" not in known:
        version = (known["package"].get("imported") or {}).get("version", VERSION)
        known["files"] = {
            path: {**_file(f"{ROOT}/{path}", text), "record_sha256": record_sha256(version, path)}
            for path, text in contents.items()
        }
    verdicts = {path: {"ok": True, "error": None} for path in bundle_files(BUNDLE)}
    return assemble(NODE, BUNDLE, known, contents, verdicts, uid=UID)


def with_args(found: Picture, **args: Any) -> Picture:
    """The same of a node whose inventory asks for these arguments too."""
    server = found.node.server.model_copy(update={"args": {**found.node.server.args, **args}})
    return replace(found, node=replace(found.node, server=server))


def on_cpu(found: Picture) -> Picture:
    """The same of a node whose server is to run on the CPU."""
    return with_args(found, device="cpu")
