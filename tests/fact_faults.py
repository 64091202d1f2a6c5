"""Faults as changes of a healthy node's facts (tests/pictures.py), each with the checks that do not pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests import pictures
from tests.pictures import DEEPSEEK, DRAFT, LOG, ROOT, STARTED_S, config

Facts = dict[str, Any]
Change = Callable[[Facts], None]


def drop_rank(facts: Facts) -> None:
    facts["procs"]["processes"] = [p for p in facts["procs"]["processes"] if p["pid"] != 102]
    facts["gpus"]["holders"] = [h for h in facts["gpus"]["holders"] if h["pid"] != 102]
    facts["gpus"]["gpus"][1]["memory_used_mib"] = 10


def no_server(facts: Facts) -> None:
    facts["procs"].update(processes=[], listeners=[])
    facts["gpus"]["holders"] = []
    for gpu in facts["gpus"]["gpus"]:
        gpu["memory_used_mib"] = 10
    refused = {"status": None, "error": "connection refused", "elapsed_s": 0.0}
    facts["http"] = dict.fromkeys(facts["http"], refused)


def orphan(facts: Facts) -> None:
    facts["procs"]["processes"].append(
        pictures.process(900, "sglang::scheduler_TP0", "scheduler", ppid=1, sid=899)
    )
    facts["gpus"]["holders"].append(
        {"gpu_index": 0, "pid": 900, "name": "sglang::scheduler_TP0", "used_mib": 9}
    )


def stranger_on_gpu(facts: Facts) -> None:
    facts["procs"]["processes"].append(
        pictures.process(901, "python3 train.py", None, ppid=1, sid=901, uid=2000, user="other")
    )
    facts["gpus"]["holders"].append({"gpu_index": 0, "pid": 901, "name": "python3", "used_mib": 4000})


def stranger_on_port(facts: Facts) -> None:
    facts["procs"]["listeners"] = [{"port": 8000, "pid": None, "uid": 2000}]


def rank_stopped(facts: Facts) -> None:
    facts["procs"]["processes"][2]["state"] = "T"


def started_before_the_fix(facts: Facts) -> None:
    for each in facts["procs"]["processes"]:
        each["start_time"] = STARTED_S - 3600


def old_config(facts: Facts) -> None:
    facts["configs"][DRAFT]["text"] = config([2, 30, 58])


def config_with_a_mark(facts: Facts) -> None:
    """Saved by an editor of Windows: transformers does not read it, and the next start ends there."""
    facts["configs"][DRAFT]["text"] = "\ufeff" + config([-1, 2, 30])


def config_as_text(facts: Facts) -> None:
    facts["configs"][DRAFT]["text"] = config([-1, 2, 30]).replace("[\n", '"[').replace("]", ']"')


def no_config(facts: Facts) -> None:
    facts["configs"][DRAFT] = {
        "exists": False,
        "sha256": None,
        "symlink": None,
        "real_path": DRAFT,
        "text": None,
    }


def pyc(**more: Any) -> Change:
    entry = {
        "path": "x.pyc",
        "kind": "timestamp",
        "why": "time and size match",
        "believed": True,
        "stale": True,
    }

    def change(facts: Facts) -> None:
        facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["pycs"] = [{**entry, **more}]

    return change


def module_shadowed(facts: Facts) -> None:
    facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["shadow"] = f"{ROOT}/{DEEPSEEK.removesuffix('.py')}/__init__.py"


def memory_not_told(facts: Facts) -> None:
    for gpu in facts["gpus"]["gpus"]:
        gpu["memory_used_mib"] = None


def holders_not_told(facts: Facts) -> None:
    facts["gpus"].update(holders=[], holders_known=False, why="the process list is [Not Supported]")


def leak(facts: Facts) -> None:
    facts["gpus"]["gpus"].append({"index": 2, "memory_used_mib": 70211, "memory_total_mib": 97887})


def leak_beside_a_rank(facts: Facts) -> None:
    """The node says that its list is short of somebody (remote/node/gpus.py, accounted_for)."""
    facts["gpus"]["gpus"][1]["memory_used_mib"] += 9000
    facts["gpus"].update(holders_known=False)


def holder_without_pid(facts: Facts) -> None:
    facts["gpus"]["holders"].append({"gpu_index": 0, "pid": None, "name": "[N/A]", "used_mib": None})


def other_draft_tokens(facts: Facts) -> None:
    facts["http"]["server_info"]["body"] = json.dumps(
        {**pictures.EFFECTIVE, "speculative_num_draft_tokens": 2}
    )


def arguments_not_told(facts: Facts) -> None:
    facts["http"]["server_info"] = {"status": 404, "elapsed_s": 0.0, "body": ""}


def one_rank_silent(facts: Facts) -> None:
    facts["log"]["matches"] = [m for m in facts["log"]["matches"] if "TP1" not in m["text"]]


def other_capture(facts: Facts) -> None:
    for match in facts["log"]["matches"]:
        match["text"] = match["text"].replace("[embed, in:3, in:31]", "[in:2, in:30, in:58]")


def log_absent(facts: Facts) -> None:
    facts["log"] = {"exists": False, "path": LOG}


def log_elsewhere(facts: Facts) -> None:
    facts["procs"]["processes"][0]["log_fds"] = ["/tmp/nohup.out"]


def log_into_a_pipe(facts: Facts) -> None:
    """`... | tee other.log`: the inventory's file may be an old boot's."""
    for each in facts["procs"]["processes"]:
        each["log_fds"] = []


def log_of_another_port(facts: Facts) -> None:
    """Two servers append to one file, and the other one started last."""
    record = facts["log"]["matches"][0]
    record["text"] = record["text"].replace("port=8000", "port=8001")


def log_of_the_day_before(facts: Facts) -> None:
    """The server appends to an old boot's file, and logs no record of its own (--log-level warning)."""
    for match in facts["log"]["matches"]:
        match["text"] = match["text"].replace("2026-11-29", "2026-11-28")


def log_cut_off(facts: Facts) -> None:
    facts["log"]["matches"] = facts["log"]["matches"][:2]


def hangs_with_200(facts: Facts) -> None:
    facts["http"]["generate"] = {"status": None, "error": "no answer within 60 s", "elapsed_s": 60.0}


def tokens_told(tokens: object) -> Change:
    def change(facts: Facts) -> None:
        facts["http"]["generate"]["body"] = json.dumps({"meta_info": {"completion_tokens": tokens}})

    return change


no_tokens = tokens_told(0)


def not_sglang(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = "<html>hello</html>"


def unhealthy(facts: Facts) -> None:
    facts["http"]["health"] = {"status": 503, "elapsed_s": 20.0, "body": ""}


def no_weights(facts: Facts) -> None:
    facts["weights"].update(
        files={"config.json": 900}, ctimes_ns={"config.json": pictures.CHANGED_NS}, shapes=None
    )


def narrow_fc(facts: Facts) -> None:
    facts["weights"]["shapes"]["fc.weight"] = [7168, 2 * 7168]


def no_eagle3_draft(facts: Facts) -> None:
    """It would load none of the weights: they are named as an EAGLE-3 draft's."""
    text = facts["configs"][DRAFT]["text"]
    facts["configs"][DRAFT]["text"] = text.replace("LlamaForCausalLMEagle3", "LlamaForCausalLM")


def no_head(facts: Facts) -> None:
    """It would be left at random values, and nothing would be accepted: no error anywhere."""
    del facts["weights"]["shapes"]["lm_head.weight"]


def pickled_weights(facts: Facts) -> None:
    sizes = {"config.json": 900, "pytorch_model.bin": 1_000_000}
    changed = dict.fromkeys(sizes, pictures.CHANGED_NS)
    facts["weights"].update(files=sizes, ctimes_ns=changed, shapes=None)


def other_weights_since_the_start(facts: Facts) -> None:
    """Of the same shapes: a newer checkpoint was copied over the one that the server loaded."""
    facts["weights"]["ctimes_ns"]["model.safetensors"] = int((STARTED_S + 60) * 1e9)


def a_shard_is_gone(facts: Facts) -> None:
    facts["weights"]["shards"] = ["model.safetensors", "model-00002-of-00002.safetensors"]


def started_as(program: str, **facts_of_launcher: Any) -> Change:
    def change(facts: Facts) -> None:
        argv = [program, "-m", "sglang.launch_server", "--port", "8000"]
        facts["procs"]["processes"][0].update(argv=argv, **facts_of_launcher)

    return change


def given_more(facts: Facts) -> None:
    """Started by hand with an option that the inventory does not have."""
    facts["procs"]["processes"][0]["argv"].append("--enable-metrics")


def runs_in(program: str, environment: str | None, file: str) -> dict[str, Any]:
    return {"program": program, "environment": environment, "file": file}


CONDA = "/opt/conda/bin/python"
# Both virtual environments link to one base interpreter: only the environment tells them apart.
other_environment = started_as(
    "/opt/other/bin/python",
    interpreter=runs_in("/opt/other/bin/python", "/opt/other", pictures.EXE),
)
other_interpreter = started_as(
    "/usr/bin/python3", interpreter=runs_in("/usr/bin/python3", None, pictures.EXE)
)
other_on_the_path = started_as("python", interpreter=runs_in(CONDA, None, f"{CONDA}3.11"), exe=f"{CONDA}3.11")
other_executable = started_as("python", interpreter=None, exe=f"{CONDA}3.11")
executable_hidden = started_as("python", interpreter=None, exe=None)


def other_copies(facts: Facts) -> None:
    facts["package"]["copies"] = [
        {"root": "/sgl-workspace/sglang/python", "version": "0.5.9", "kind": "source", "why": "on sys.path"}
    ]


def interpreter_not_told(facts: Facts) -> None:
    """By the base interpreter alone: which of several SGLangs it imports cannot be said."""
    other_copies(facts)
    started_as("python", interpreter=None)(facts)


def other_search_path(facts: Facts) -> None:
    facts["procs"]["processes"][0]["env"] = {"PYTHONPATH": "/sgl-workspace/sglang/python"}


def started_beside_a_checkout(facts: Facts) -> None:
    facts["procs"]["processes"][0].update(cwd="/sgl-workspace/sglang/python", cwd_package=True)


def started_under_another_root(facts: Facts) -> None:
    """An inventory's `command` that enters a container: its files are not those that were looked at."""
    first = facts["procs"]["processes"][0]
    first["root"], facts["procs"]["self"]["root"] = "0:57", "254:2"
    boot = {"id": "b", "pid": first["pid"], "starttime_ticks": first["starttime_ticks"]}
    facts["state"]["boots"] = [{**boot, "kernel_boot_id": facts["node"]["boot_id"]}]


def environment_hidden(facts: Facts) -> None:
    facts["procs"]["processes"][0]["env"] = None


GONE = {"process.single", "process.owner", "process.ranks", "process.after_fix", "gpu.holders"}
LOG_CHECKS = ("log.boot", "log.capture", "log.errors")
GONE |= {"log.boot", "health.http", "health.generate", "args.effective"}


# Each change alone, and every check that does not pass because of it.
FAULTS: tuple[tuple[Change, dict[str, str]], ...] = (
    (
        no_server,
        {**dict.fromkeys(GONE, "fail"), "args.effective": "unknown"},
    ),
    (drop_rank, {"process.ranks": "fail"}),
    (rank_stopped, {"process.ranks": "fail"}),
    (orphan, {"process.single": "fail", "gpu.holders": "fail"}),
    (given_more, {"args.effective": "fail"}),
    (stranger_on_gpu, {"gpu.holders": "fail"}),
    (stranger_on_port, {"process.owner": "fail"}),
    (started_before_the_fix, {"process.after_fix": "fail"}),
    (
        config_with_a_mark,
        {
            "config.values": "fail",
            **dict.fromkeys(("config.draft", "source.behaviour", "wiring.eager", "wiring.graph"), "unknown"),
        },
    ),
    (old_config, {"config.values": "fail", "wiring.eager": "fail", "wiring.graph": "fail"}),
    (pyc(), {"bytecode.fresh": "fail"}),
    (pyc(kind="unchecked-hash"), {"bytecode.fresh": "fail"}),
    (pyc(stale=None), {"bytecode.fresh": "unknown"}),
    (pyc(believed=None, stale=None), {"bytecode.fresh": "unknown"}),
    (pyc(believed=False, stale=False), {}),
    (module_shadowed, {"bytecode.fresh": "fail"}),
    (memory_not_told, {"gpu.holders": "unknown"}),
    (holders_not_told, {"gpu.holders": "unknown"}),
    (leak, {"gpu.holders": "fail"}),
    (holder_without_pid, {"gpu.holders": "unknown"}),
    (leak_beside_a_rank, {"gpu.holders": "fail"}),
    (other_draft_tokens, {"args.effective": "fail"}),
    (one_rank_silent, {"log.capture": "fail"}),
    (other_capture, {"log.capture": "fail"}),
    (log_absent, dict.fromkeys(LOG_CHECKS, "unknown")),
    (log_elsewhere, {"log.boot": "fail", "log.capture": "unknown", "log.errors": "unknown"}),
    (log_into_a_pipe, dict.fromkeys(LOG_CHECKS, "unknown")),
    (log_of_another_port, dict.fromkeys(LOG_CHECKS, "unknown")),
    (log_of_the_day_before, dict.fromkeys(LOG_CHECKS, "unknown")),
    (log_cut_off, {"log.boot": "unknown", "log.capture": "unknown"}),
    (hangs_with_200, {"health.generate": "fail"}),
    (no_tokens, {"health.generate": "fail"}),
    (tokens_told(-1), {"health.generate": "fail"}),
    (tokens_told("x"), {"health.generate": "unknown"}),
    (tokens_told(True), {"health.generate": "unknown"}),
    (not_sglang, {"health.generate": "unknown"}),
    (unhealthy, {"health.http": "fail"}),
    (no_weights, {"config.draft": "fail", "process.after_fix": "unknown"}),
    (a_shard_is_gone, {"config.draft": "fail", "process.after_fix": "unknown"}),
    (other_weights_since_the_start, {"process.after_fix": "fail"}),
    (narrow_fc, {"config.draft": "fail"}),
    (no_eagle3_draft, {"config.draft": "fail"}),
    (no_head, {"config.draft": "fail"}),
    (pickled_weights, {"config.draft": "unknown"}),
    (other_interpreter, {"source.file": "fail"}),
    (other_environment, {"source.file": "fail"}),
    (other_on_the_path, {"source.file": "fail"}),
    (other_executable, {"source.file": "fail"}),
    (executable_hidden, {"source.file": "unknown"}),
    (interpreter_not_told, {"source.file": "unknown"}),
    (other_search_path, {"source.file": "fail"}),
    (started_beside_a_checkout, {"source.file": "fail"}),
    (started_under_another_root, {"source.file": "fail"}),
    (environment_hidden, {"source.file": "unknown"}),
)
