"""What must be done so that the node is as meant: picture in, plan out. Pure.

A plan is a list of actions with their before and after. `--dry-run` is the same code stopped here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import secrets
from .arguments import refuse_adjusted_arguments
from .checks import Check
from .errors import RefusedError
from .fixes import FileState
from .intent import expected_ranks, model_config_path, uses_no_gpu
from .ownership import Process
from .picture import Picture
from .running import Boot, boot_of, launcher, silent_s, started_as_meant, started_otherwise, still_starting
from .strangers import refuse_foreign

# A running server on which one of these fails is not the one that is meant: it is started anew.
_RESTART = (
    "process.single",
    "process.owner",
    "process.ranks",
    "process.after_fix",
    "args.effective",
    "log.boot",
    "log.capture",
    "health.generate",
)


@dataclass(frozen=True)
class Write:
    """One file to be written: its new content, and the content that it must still have (None: none)."""

    path: str
    label: str
    content: bytes
    expect_sha256: str | None
    compile: bool
    replace_symlink: bool


@dataclass(frozen=True)
class Action:
    """One step. `detail` says what and why, in one line."""

    id: str
    would_change: bool
    detail: str
    diff: str = ""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    code: tuple[Write, ...] = ()
    config: tuple[Write, ...] = ()
    purge: tuple[str, ...] = ()
    to_end: tuple[Process, ...] = ()
    restart: bool = False
    # A server that is still starting, and is the one that is meant: left alone, and waited for.
    awaits: Boot | None = None

    @property
    def changes(self) -> bool:
        return any(action.would_change for action in self.actions)

    def action(self, id: str) -> Action:
        return next(action for action in self.actions if action.id == id)


def build(picture: Picture, checks: Sequence[Check]) -> Plan:
    """Everything that `deploy-fix` would do here.

    UsageError for arguments that SGLang would change; RefusedError where the fix does not fit or a
    foreign process is in the way. Both before anything is touched.
    """
    refuse_adjusted_arguments(picture)
    code, config = code_writes(picture), config_writes(picture)
    purge = stale_modules(picture, code)
    changed = ("its code changes", code), ("the draft's configuration changes", config)
    served = serve(picture, checks, [why for why, writes in changed if writes])
    files = (*push_actions(picture, code, config), purge_action(purge, picture))
    return replace(served, actions=(*files, *served.actions), code=code, config=config, purge=purge)


def serve(picture: Picture, checks: Sequence[Check], why: Sequence[str]) -> Plan:
    """What is to be done with the processes: a server that is not the one that is meant is started anew, and
    so is one whose files change (`why`). RefusedError where one could not be started."""
    reasons = [*why, *_restart_reasons(picture, checks)]
    awaits = boot_of(picture) if _loading(picture, checks) and not reasons else None
    stale = [each.process for each in picture.ownership.stale] if picture.ownership else []
    to_end = tuple(picture.ownership.to_end() if reasons and picture.ownership else stale)
    if reasons:
        refuse_start(picture)
    start = "; ".join([*reasons[:1], *started_otherwise(picture)]) if reasons else _left(picture, awaits)
    actions = (
        kill_action(to_end, picture, reasons),
        free_action(to_end, picture, restart=bool(reasons)),
        Action("start", bool(reasons), start),
        Action("health", False, "wait until it generates" if reasons or awaits else _generates(checks)),
    )
    return Plan(actions, to_end=to_end, restart=bool(reasons), awaits=awaits)


def _generates(checks: Sequence[Check]) -> str:
    found = next(check for check in checks if check.id == "health.generate")
    return "it generates" if found.verdict == "pass" else f"{found.verdict}: {found.observed}"


def code_writes(picture: Picture) -> tuple[Write, ...]:
    """The bundle's files that are not as they should be. RefusedError where the fix does not fit."""
    node, fix = picture.node, picture.fix
    if fix is None or picture.root is None:
        raise RefusedError(
            f"{node.name}: the SGLang of {node.python} cannot be read: {picture.problem or 'not found'}",
            hint="set `python` of this node to the interpreter that runs SGLang",
            node=node.name,
        )
    _refuse_shadowed(picture)
    if fix.state == "uncovered":
        raise RefusedError(
            f"{node.name}: {fix.problem}",
            hint=f"inv fixes --node {node.name} shows what fits; docs/fixes.md tells how to write a bundle",
            node=node.name,
            data={"reason": "uncovered"},
        )
    if fix.state == "foreign":
        diff = "\n".join(file.diff for file in fix.files if file.state == "foreign" and file.diff)
        raise RefusedError(
            f"{node.name}: {picture.bundle.name} does not fit: {fix.problem}",
            hint="mend the file, or start from the version's wheel: inv deploy-fix --from-pristine",
            node=node.name,
            data={"reason": "misfit", "diff": diff},
        )
    return tuple(_write(picture, file) for file in fix.files if file.new_text is not None)


def _refuse_shadowed(picture: Picture) -> None:
    """What is written would not be what is imported, and no restart would change that."""
    node, modules = picture.node, picture.facts.get("bytecode", {})
    for path, facts in modules.items():
        if facts.get("shadow"):
            raise RefusedError(
                f"{node.name}: {facts['shadow']} is imported in place of {path}",
                hint=f"move it away, then: inv deploy-fix --node {node.name}",
                node=node.name,
                data={"reason": "misfit"},
            )


def _write(picture: Picture, file: FileState) -> Write:
    fact = picture.section("files").get(file.path, {})
    assert file.new_text is not None
    return Write(picture.path_of(file.path), file.path, file.new_text, fact.get("sha256"), True, False)


def config_writes(picture: Picture) -> tuple[Write, ...]:
    """The draft's config.json, where a value differs."""
    node, config = picture.node, picture.config
    if not picture.bundle.spec.config:
        return ()
    if config is None:
        raise RefusedError(
            f"{node.name}: the bundle sets the draft's configuration, and the server has no draft_model_path",
            hint=f"set draft_model_path of server '{node.server_name}' in the inventory",
            node=node.name,
        )
    if config.state is None or config.text is None:
        raise RefusedError(
            f"{node.name}: {config.path} {config.problem}",
            hint=f"look at it there, and at draft_model_path of server '{node.server_name}' in the inventory",
            node=node.name,
        )
    if config.state.state == "misfit":
        raise RefusedError(
            f"{node.name}: {config.path} cannot be edited: {config.state.problem}",
            hint="mend the file by hand, then run the command again",
            node=node.name,
            data={"reason": "misfit"},
        )
    if config.state.new_text is None:
        return ()
    # A Hugging Face snapshot links into blobs that other snapshots share: the link is replaced.
    link = config.facts.get("symlink") is not None
    return (Write(config.path, config.path, config.state.new_text, config.facts["sha256"], False, link),)


def stale_modules(picture: Picture, code: Sequence[Write]) -> tuple[str, ...]:
    """Source files whose bytecode must go: those about to change, and those with stale bytecode."""
    modules = picture.facts.get("bytecode", {})
    if "error" in modules:
        raise RefusedError(
            f"{picture.node.name}: the bytecode could not be looked at: {modules['error']['message']}",
            hint=f"inv verify --node {picture.node.name}",
            node=picture.node.name,
        )
    changing = {write.path for write in code}
    return tuple(
        path
        for path, facts in modules.items()
        if (path in changing and facts.get("pycs"))
        or any(pyc["believed"] is not False and pyc["stale"] is not False for pyc in facts.get("pycs", []))
    )


def _restart_reasons(picture: Picture, checks: Sequence[Check]) -> list[str]:
    reasons = []
    stale_only = picture.ownership is not None and picture.ownership.server is not None
    loading = _loading(picture, checks)
    for check in checks:
        if check.verdict != "fail" or check.id not in _RESTART:
            continue
        if check.id == "args.effective" and started_as_meant(picture):
            continue  # SGLang changes what it is given: it would do so again
        if check.id == "process.single" and stale_only:
            continue  # what is stale beside a good server goes without a restart
        if loading and _comes_with_time(check, picture):
            continue
        reasons.append(check.observed)
    if any(c.id == "bytecode.fresh" and c.verdict == "fail" for c in checks):
        reasons.append("it may have loaded stale bytecode")
    if loading and silent_s(picture) > picture.node.server.ready_timeout_s:
        reasons.append(f"it has been starting without a word in its log for {silent_s(picture):.0f} s")
    return reasons


def _loading(picture: Picture, checks: Sequence[Check]) -> bool:
    """Is the running server on its way up? One that generates is there, whatever its log says."""
    silent = any(check.id == "health.generate" and check.verdict == "fail" for check in checks)
    return silent and still_starting(picture)


def _comes_with_time(check: Check, picture: Picture) -> bool:
    """Does this check fail only because the server is still starting? To end it now would throw away what
    it has loaded."""
    owned = picture.ownership
    if owned is None or owned.server is None:
        return False
    if check.id == "process.owner":
        return not owned.port_held
    if check.id == "process.ranks":
        return len(owned.server.ranks()) < expected_ranks(picture.node.server)
    return check.id == "health.generate"


def _left(picture: Picture, awaits: Boot | None) -> str:
    """Why no server is started."""
    if awaits is None or picture.boot is None:
        return "the server that runs is the one that is meant"
    return (
        f"pid {awaits.pid} is the one that is meant, and still starting ({picture.boot.stage}): not restarted"
    )


def refuse_start(picture: Picture) -> None:
    """All that must hold before the old server is ended, so that a new one can follow it."""
    refuse_foreign(picture)
    refuse_blind(picture)
    refuse_unstartable(picture)
    secrets.require(picture.node.server, os.environ)


def refuse_unstartable(picture: Picture) -> None:
    """What the inventory names for the start, and is not there: found before anything is touched."""
    node, server = picture.node, picture.node.server
    problems = list(picture.section("startable")["problems"])
    model = model_config_path(server)
    if server.model_path.startswith("/") and not picture.section("configs").get(model, {}).get("exists"):
        problems.append(f"{model} is not there")
    if problems:
        raise RefusedError(
            f"{node.name}: the server could not be started: {'; '.join(problems)}",
            hint=f"mend server '{node.server_name}' in the inventory, or the node",
            node=node.name,
        )


def refuse_blind(picture: Picture) -> None:
    """Without nvidia-smi nothing could be said about the GPUs' memory before a start."""
    node, gpus = picture.node, picture.facts.get("gpus", {})
    if uses_no_gpu(node):
        return
    if "error" in gpus or not gpus.get("available"):
        why = gpus.get("why") or gpus.get("error", {}).get("message") or "not found"
        raise RefusedError(
            f"{node.name}: nvidia-smi cannot be asked about the GPUs: {why}",
            hint="make nvidia-smi work on the node; a server without GPUs has `device: cpu` in its args",
            node=node.name,
            data={"reason": "gpu-unseen"},
        )


def push_actions(picture: Picture, code: Sequence[Write], config: Sequence[Write]) -> tuple[Action, Action]:
    state = picture.config.state if picture.config else None
    return (
        _push("push-code", code, _diffs(picture)),
        _push("push-config", config, state.diff if state else ""),
    )


def _push(id: str, writes: Sequence[Write], diff: str) -> Action:
    if not writes:
        return Action(id, False, "in place")
    return Action(id, True, "write " + ", ".join(write.label for write in writes), diff)


def _diffs(picture: Picture) -> str:
    return "\n".join(file.diff for file in (picture.fix.files if picture.fix else ()) if file.new_text)


def purge_action(purge: Sequence[str], picture: Picture) -> Action:
    if not purge:
        return Action("purge-pycache", False, "no stale bytecode")
    modules: dict[str, Any] = dict(picture.facts["bytecode"])
    count = sum(len(modules[path]["pycs"]) for path in purge)
    return Action("purge-pycache", True, f"remove {count} pycs of {len(purge)} modules")


def free_action(to_end: Sequence[Process], picture: Picture, *, restart: bool) -> Action:
    first = launcher(picture)
    if not to_end:
        return Action("free-gpus", False, "nothing to free")
    if uses_no_gpu(picture.node):
        return Action("free-gpus", False, "the server uses no GPU")
    if first is not None and not restart:
        # It is left to run, so that their memory never comes back.
        return Action("free-gpus", False, f"the server, pid {first.pid}, holds them")
    return Action("free-gpus", True, "wait until the GPUs' memory is back")


def kill_action(to_end: Sequence[Process], picture: Picture, reasons: Sequence[str] = ()) -> Action:
    """`reasons`: why the server is among them, where it is."""
    if not to_end:
        return Action("kill-stale", False, "nothing stale")
    parts = []
    owned = picture.ownership
    assert owned is not None
    server = [p for p in to_end if owned.server and p in owned.server.members]
    if server and owned.server and owned.server.launcher:
        parts.append(
            f"the server, pid {owned.server.launcher.pid} with {len(server) - 1} more ({reasons[0]})"
        )
    by_reason: dict[str, list[str]] = {}
    for each in owned.stale:
        by_reason.setdefault(each.why, []).append(str(each.process.pid))
    parts += [f"{len(pids)} stale, pid {', '.join(pids)} ({why})" for why, pids in by_reason.items()]
    return Action("kill-stale", True, "end " + "; ".join(parts))
