"""Which processes are SGLang's, and what they are: read from /proc, named by pid and start time.

The titles are those that SGLang sets with setproctitle (scheduler.py, detokenizer_manager.py,
data_parallel_controller.py, multi_tokenizer_mixin.py of 0.5.5 to 0.5.23). A title takes the place of the
command line; a dead process has none, and its name is cut to 15 bytes ("sglang::schedul").
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH113, PTH119

from __future__ import annotations

import os
import re
import sys

from . import interpreter, outputs, procfs, sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

PREFIX = "sglang::"
# How the part of a title after the prefix begins, cut to what a process name keeps of it -> role.
_TITLES = (
    ("schedul", "scheduler"),
    ("detoken", "detokenizer"),
    ("tokeniz", "tokenizer-worker"),
    ("data_pa", "dp-controller"),
)
# `python -m`; the last one before 0.4. Other modules below sglang.srt are tools and services of their own.
_LAUNCHERS = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.entrypoints.grpc_server",
    "sglang.srt.server",
)
_PYTHON = re.compile(r"python[0-9.]*")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_ENV_KEYS = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH", "PYTHONPYCACHEPREFIX")
_SECRET_OPTION = re.compile(
    r"(--?(?:[\w-]+[-_])?(?:key|token|secret|password|passwd)|--(?:admin-)?api-k\w*)(=.*)?"
)
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=.*", re.DOTALL)
REDACTED = "***"  # as the control side masks what it shows


def role(process: dict[str, Any]) -> str | None:
    """What a process {argv, comm} is to SGLang, by how it was started or by the title that it gave itself.

    "launcher|scheduler|detokenizer|tokenizer-worker|dp-controller|resource-tracker|member", or None. An
    editor or a grep with "sglang" among its arguments is nothing. A resource tracker is any Python
    program's: that it is SGLang's is told by its family only.
    """
    argv = process.get("argv") or []
    for name in (argv[0] if argv else "", process.get("comm") or ""):
        if name.startswith(PREFIX):
            rest = name[len(PREFIX) :]
            return next((known for start, known in _TITLES if rest.startswith(start)), "member")
    return _role_of_command(argv) if argv else None


def _role_of_command(argv: list[str]) -> str | None:
    """By `python [options] -m MODULE`, `python SCRIPT` or the `sglang` script."""
    program = os.path.basename(argv[0])
    if program == "sglang" and argv[1:2] == ["serve"]:
        return "launcher"
    if not _PYTHON.fullmatch(program):
        return None
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        option = argv[at]
        if option.startswith("--"):
            at += 2 if option in _OPTIONS_WITH_VALUE else 1
            continue
        if option[:2] in _OPTIONS_WITH_VALUE:
            at += 2 if len(option) == 2 else 1
            continue
        # Short options may stand together, e.g. -um MODULE or -Bc CODE.
        kind = next((letter for letter in option[1:] if letter in "mc"), None)
        if kind is None:
            at += 1
            continue
        value = option.partition(kind)[2] or "".join(argv[at + 1 : at + 2])
        rest = argv[at + 1 :] if option.partition(kind)[2] else argv[at + 2 :]
        if kind == "c":
            return "resource-tracker" if "multiprocessing.resource_tracker" in value else None
        return _role_of_module(value, rest)
    script = argv[at] if at < len(argv) else ""
    serves = os.path.basename(script) == "sglang" and argv[at + 1 : at + 2] == ["serve"]
    return "launcher" if serves or script.endswith("/sglang/launch_server.py") else None


def _role_of_module(module: str, rest: list[str]) -> str | None:
    if module in _LAUNCHERS:
        return "launcher"
    serves = module in ("sglang", "sglang.cli", "sglang.cli.main") and rest[:1] == ["serve"]
    return "launcher" if serves else None


def redact(argv: list[str]) -> list[str]:
    """A command line without the values of secret options (--api-key X, --hf-token=X) and variables."""
    shown: list[str] = []
    hide_next = False
    for item in argv:
        option = _SECRET_OPTION.fullmatch(item)
        assignment = _ASSIGNMENT.fullmatch(item)
        if hide_next:
            shown.append(REDACTED)
        elif option and option.group(2):
            shown.append(f"{option.group(1)}={REDACTED}")
        elif assignment and _SECRET_NAME.search(assignment.group(1)):
            shown.append(f"{assignment.group(1)}={REDACTED}")
        else:
            shown.append(item)
        hide_next = not hide_next and option is not None and not option.group(2)
    return shown


def title(process: dict[str, Any]) -> str:
    """The redacted command line in one text, "[comm]" where there is none."""
    return " ".join(redact(process["argv"])) if process["argv"] else f"[{process['comm']}]"


def table() -> dict[int, dict[str, Any]]:
    """Every process but the kernel's own: pid -> what procfs.stat() tells, and `argv`."""
    found: dict[int, dict[str, Any]] = {}
    for pid in procfs.pids():
        process = procfs.stat(pid)
        if process is not None and not process["kernel"]:
            found[pid] = {**process, "argv": procfs.argv(pid)}
    return found


def family(processes: dict[int, dict[str, Any]], command: list[str] | None = None) -> dict[int, str | None]:
    """The processes that have to do with SGLang -> role.

    Those with a role of their own; "member" (or "resource-tracker") for what descends from them, and for
    Python's helpers that a launcher which died left behind in their process group; None for what merely
    stands in the same session, such as the shell that started the server and its other jobs. Never this
    process or its ancestors.
    What begins with `command`, the server's own one where it has one, is a launcher too.
    """
    roles = {
        pid: "launcher" if command and process["argv"][: len(command)] == command else role(process)
        for pid, process in processes.items()
    }
    seeds = {pid for pid, found in roles.items() if found not in (None, "resource-tracker")}
    above = {parent for pid in seeds for parent in _above(pid, processes)}
    kept_out = {os.getpid(), *procfs.ancestors(os.getpid()), *(above - seeds)}
    groups = {processes[pid]["pgid"] for pid in seeds}
    sessions = {processes[pid]["sid"] for pid in seeds}
    result: dict[int, str | None] = {}
    for pid, process in processes.items():
        left = process["pgid"] in groups and _is_helper(process) and not _has_parent(process, processes)
        if pid in seeds:
            result[pid] = roles[pid]
        elif pid not in kept_out and (left or seeds & _above(pid, processes)):
            result[pid] = roles[pid] or "member"
        elif process["sid"] in sessions and pid != os.getpid():
            result[pid] = None
    return result


def _is_helper(process: dict[str, Any]) -> bool:
    """`python -c "from multiprocessing.spawn import ..."`, or the resource tracker. A group may hold others:
    a script that starts a server and then its clients has them all in its own."""
    return any(word.startswith("from multiprocessing.") for word in process["argv"])


def _has_parent(process: dict[str, Any], processes: dict[int, dict[str, Any]]) -> bool:
    """Whether the parent that started it still lives: who adopts orphans has a session of its own."""
    parent = processes.get(process["ppid"])
    alive = parent is not None and parent["state"] not in procfs.DEAD
    return alive and parent is not None and parent["sid"] == process["sid"]


def _above(pid: int, processes: dict[int, dict[str, Any]]) -> set[int]:
    found: set[int] = set()
    parent = processes[pid]["ppid"]
    while parent in processes and parent not in found:
        found.add(parent)
        parent = processes[parent]["ppid"]
    return found


def describe(
    process: dict[str, Any],
    its_role: str | None,
    env_keys: tuple[str, ...],
    processes: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    """All facts of one of the `processes`; null where /proc does not let us read."""
    pid = process["pid"]
    uid = procfs.uid_of(pid)
    cwd = procfs.link(f"/proc/{pid}/cwd")
    given = environment(pid, ("PATH", *env_keys))
    search_path = None if given is None else given.pop("PATH", None)
    return {
        **{key: process[key] for key in ("pid", "starttime_ticks", "ppid", "sid", "pgid", "state", "comm")},
        "start_time": procfs.start_time(process["starttime_ticks"]),
        "uid": uid,
        "user": None if uid is None else procfs.user_of(uid),
        "title": title(process),
        "argv": redact(process["argv"]),
        "role": its_role,
        "net": procfs.link(f"/proc/{pid}/ns/net"),
        "root": procfs.root(pid),
        "exe": procfs.link(f"/proc/{pid}/exe"),
        "interpreter": interpreter.of(process["argv"], cwd, search_path),
        "cwd": cwd,
        # `python -m` imports from its working directory before anything else.
        "cwd_package": os.path.isfile(f"/proc/{pid}/cwd/sglang/__init__.py"),
        "threads_alive_of_zombie": process["state"] in procfs.DEAD and procfs.living_threads(pid),
        "env": given,
        "log_fds": outputs.log_files(pid, processes),
    }


def environment(pid: int, keys: tuple[str, ...]) -> dict[str, str] | None:
    """Selected variables and SGLANG_*; null when unreadable or overwritten by the process's title."""
    text = procfs.read(f"/proc/{pid}/environ")
    items = [item for item in (text or b"").split(b"\0") if item]
    if not items or not all(re.match(rb"[^=]+=", item) for item in items):
        return None
    found: dict[str, str] = {}
    for item in items:
        name, _, value = item.decode("utf-8", "replace").partition("=")
        if name in keys or name.startswith("SGLANG_"):
            found[name] = REDACTED if _SECRET_NAME.search(name) else value
    return found


def procs(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{port, command?, env_keys?, extra_pids?} -> {processes, listeners, port_states, self}.

    `processes`: SGLang's (see family()), what listens on the port, and `extra_pids`. `listeners`: only
    sockets in LISTEN on exactly this port, `pid` null when its owner's descriptors cannot be read. `self`:
    this helper, which runs in the inventory's interpreter, and what has to be left alone with it.
    """
    everything = table()
    roles = family(everything, params.get("command"))
    listeners, states = sockets.listeners(params.get("port"), list(roles), list(everything))
    wanted = {**dict.fromkeys(params.get("extra_pids") or []), **roles}
    for listener in listeners:
        wanted = {**dict.fromkeys(listener["pids"]), **wanted}
    keys = (*_ENV_KEYS, *(params.get("env_keys") or ()))
    return {
        "processes": [
            describe(everything[pid], wanted[pid], keys, everything)
            for pid in sorted(wanted)
            if pid in everything
        ],
        "listeners": listeners,
        "port_states": states,
        "self": {
            "pid": os.getpid(),
            "ancestors": procfs.ancestors(os.getpid()),
            "net": procfs.link("/proc/self/ns/net"),
            "root": procfs.root("self"),
            "exe": procfs.link("/proc/self/exe"),
            "interpreter": interpreter.of([sys.executable], None, None),
        },
    }


OPS = {"facts.procs": procs}
