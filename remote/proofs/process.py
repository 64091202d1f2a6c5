"""Is exactly one server up, is it ours, is it whole, and did it start after the fix?"""

from __future__ import annotations

import time

from ..checks import Check, Evidence, failed, passed, unknown
from ..intent import expected_ranks
from ..ownership import Ownership, Process, processes_of
from ..picture import Facts, Picture, Unreadable
from ..sglang import draft
from ..sglang.modelpath import tidy

NO_SERVER = "no server of ours runs"
PURGED = "the bytecode of its modules"
# Of processes that are not the server: so many are shown as what there is instead.
SHOWN_OTHERS = 4


def _ownership(picture: Picture) -> Ownership:
    picture.section("procs")
    if picture.ownership is None:
        raise Unreadable("procs: the processes could not be read")
    return picture.ownership


def _seen(process: Process) -> Evidence:
    """A process by what names it: a pid may be another one's tomorrow, with its start it is not."""
    about = f"user {process.user}, state {process.state}, started {_clock(process.start_time)}"
    return Evidence(f"/proc/{process.pid}", f"{process.title} ({about})")


def _listening(picture: Picture) -> Evidence:
    """Who has the port, by the kernel's table of sockets."""
    port = picture.node.server.port
    found = picture.section("procs").get("listeners", [])
    named = [
        f"uid {each.get('uid')}, of a process that is not visible to us"
        if each.get("pid") is None
        else f"pid {each['pid']}"
        for each in found
    ]
    text = f"port {port} is listened on by {', '.join(named)}" if named else f"nobody listens on port {port}"
    return Evidence("/proc/net/tcp, tcp6", text)


def no_server(picture: Picture, id: str, expected: str) -> Check:
    """Failed, with what was looked at: the port, and what there is of SGLang instead.

    Unreadable where the processes could not be read: then it is not known whether one runs.
    """
    there = [process for process in processes_of(picture.section("procs")) if process.role is not None]
    there.sort(key=lambda process: process.role != "launcher")
    seen = [_seen(process) for process in there[:SHOWN_OTHERS]]
    if len(there) > SHOWN_OTHERS:
        seen.append(Evidence("/proc", f"{len(there) - SHOWN_OTHERS} more processes of SGLang"))
    seen = seen or [Evidence("/proc", "no process of SGLang")]
    # A restart would be refused where somebody else has the port.
    taken = any(each.gpu is None for each in _ownership(picture).foreign)
    remedy = f"inv {'status' if taken else 'restart'} --node {picture.node.name}"
    return failed(id, expected, NO_SERVER, _listening(picture), *seen, remedy=remedy)


def single(picture: Picture) -> Check:
    """One server on the port, and nothing stale beside it."""
    id, expected = "process.single", f"one server, on port {picture.node.server.port}, nothing stale"
    owned = _ownership(picture)
    clean = f"inv kill-stale --node {picture.node.name}"
    if owned.stale:
        seen = [(_seen(each.process), each.why) for each in owned.stale]
        evidence = [Evidence(process.source, f"{process.text}: {why}") for process, why in seen]
        observed = f"{len(owned.stale)} stale processes: {owned.stale[0].why}"
        return failed(id, expected, observed, *evidence, remedy=clean)
    if owned.server is None or owned.server.launcher is None:
        return no_server(picture, id, expected)
    return passed(id, expected, f"pid {owned.server.launcher.pid}", *(_seen(p) for p in owned.server.alive))


def owner(picture: Picture) -> Check:
    """The port's listener is a process of that server: nobody else answers in its place."""
    port = picture.node.server.port
    id, expected = "process.owner", f"port {port} is held by the server's own process"
    owned = _ownership(picture)
    status = f"inv status --node {picture.node.name}"
    strangers = [each for each in owned.foreign if each.what.startswith("listens")]
    if strangers:
        first = strangers[0]
        evidence = [Evidence(f"port {port}", f"pid {each.pid}: {each.title}") for each in strangers]
        there = first.what.replace(f"on port {port}", "there")
        return failed(
            id,
            expected,
            f"{first.user}'s pid {first.pid} ({first.title}) {there}",
            *evidence,
            remedy=f"end it with its owner, then: inv start --node {picture.node.name}",
        )
    if not owned.port_held:
        restart = f"inv restart --node {picture.node.name}"
        return failed(id, expected, f"nobody listens on port {port}", _listening(picture), remedy=restart)
    if owned.port_holder is None:
        why = "the listener's process is not visible to us"
        return unknown(id, expected, why, _listening(picture), remedy=status)
    members = {member.pid for member in owned.server.members} if owned.server else set()
    if owned.port_holder.pid not in members:
        return failed(
            id,
            expected,
            f"pid {owned.port_holder.pid} listens, which is not of the server",
            _seen(owned.port_holder),
            remedy=status,
        )
    return passed(id, expected, f"pid {owned.port_holder.pid}", _seen(owned.port_holder))


def ranks(picture: Picture) -> Check:
    """As many scheduler processes live as the arguments ask for."""
    want = expected_ranks(picture.node.server)
    id, expected = "process.ranks", f"{want} of {want} schedulers alive"
    owned = _ownership(picture)
    restart = f"inv restart --node {picture.node.name}"
    if owned.server is None:
        return no_server(picture, id, expected)
    alive = owned.server.ranks()
    evidence = [_seen(process) for process in owned.server.members if process.role == "scheduler"]
    observed = f"{len(alive)} of {want} schedulers alive"
    stopped = [process for process in alive if process.state in ("T", "t")]
    if len(alive) != want:
        return failed(id, expected, observed, *evidence, remedy=restart)
    if stopped:
        return failed(id, expected, f"pid {stopped[0].pid} is stopped (state T)", *evidence, remedy=restart)
    return passed(id, expected, observed, *evidence)


def after_fix(picture: Picture) -> Check:
    """The server started after the last change of any file that it loaded at start: the bundle's files and
    their bytecode, the draft's configuration and its weights.

    The change time counts (ctime), not the modification time: that one can be set back. Bytecode that was
    purged since leaves no trace but in the journal: the server may have loaded it. What shadowed a module and
    was removed by hand leaves none: its directory's time would also tell of an editor's swap file, and of the
    __pycache__ that the server itself makes there when it first starts.
    """
    id, expected = "process.after_fix", "the server started after the fix was put in place"
    owned = _ownership(picture)
    restart = f"inv restart --node {picture.node.name}"
    if owned.server is None or owned.server.launcher is None:
        return no_server(picture, id, expected)
    facts = _loaded_files(picture)
    changed = {path: fact["ctime_ns"] for path, fact in facts.items() if fact.get("exists")}
    if not changed:
        return unknown(
            id, expected, "no file of the bundle was found", remedy=f"inv fixes --node {picture.node.name}"
        )
    changes = [(ctime_ns / 1e9, path) for path, ctime_ns in changed.items()]
    purged = picture.section("state").get("purged")
    last, what = max([*changes, *([] if purged is None else [(purged, PURGED)])])
    seen = Evidence(what, f"changed {_clock(last)}")
    if what == PURGED:
        seen = Evidence("the node's journal", f"{PURGED} purged {_clock(last)}")
    # Ranks load the files, the launcher only waits for them: the earliest process decides.
    first = min(owned.server.alive, key=lambda process: process.start_time)
    evidence = (
        Evidence(f"/proc/{first.pid}/stat", f"started {_clock(first.start_time)}"),
        seen,
    )
    if first.start_time <= last:
        return failed(
            id,
            expected,
            f"started {_clock(first.start_time)}, before {what} changed",
            *evidence,
            remedy=restart,
        )
    unseen = [_why_unseen(path, fact) for path, fact in facts.items() if path not in changed]
    if picture.fix is None:
        unseen.insert(0, picture.problem or "no SGLang was found")
    if unseen:
        why = f"{unseen[0]}: when it changed cannot be told"
        return unknown(id, expected, why, *evidence, remedy=f"inv verify --node {picture.node.name}")
    return passed(id, expected, f"started {_clock(first.start_time)}", *evidence)


def _loaded_files(picture: Picture) -> dict[str, Facts]:
    """The facts of each file that the server loaded at start, by path."""
    facts: dict[str, Facts] = {
        picture.path_of(file.path): picture.section("files").get(file.path, {})
        for file in (picture.fix.files if picture.fix else ())
    }
    if picture.config:
        facts |= {picture.config.path: picture.config.facts, **_draft_weights(picture)}
    return facts


def _draft_weights(picture: Picture) -> dict[str, Facts]:
    """The same of the draft's weights."""
    folder = tidy(picture.node.server.draft_model_path or "")
    found = picture.facts.get("weights") or {}
    ctimes_ns = found.get("ctimes_ns", {})
    names = draft.loaded(ctimes_ns, found.get("shards", ()))
    if not names:
        return {f"{folder}/*.safetensors": found if "error" in found else {"exists": False}}
    return {
        f"{folder}/{name}": {"exists": name in ctimes_ns, "ctime_ns": ctimes_ns.get(name)} for name in names
    }


def _why_unseen(path: str, fact: Facts) -> str:
    if "error" in fact:
        return str(fact["error"]["message"])
    return f"{path} is not there"


def _clock(epoch_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch_s)) + f".{int(epoch_s % 1 * 100):02d} UTC"
