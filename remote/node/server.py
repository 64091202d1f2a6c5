"""Start a server that outlives the helper and the connection, with its own log and a record of the boot."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH104, PTH105, PTH108, PTH109, PTH112, PTH113, PTH114, PTH118, PTH119, PTH120, PTH122, PTH211

from __future__ import annotations

import os
import stat as stat_bits
import sys

from . import procfs
from .base import OpError, changes
from .fsio import absolute, identifier, op_error, sync_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

# Runs between the helper and the server and ends at once, so that the server is nobody's child here and leads
# a session of its own. A process of its own: the helper has threads, and must not fork. Writes "PID TICKS" or
# "-ERRNO" to the descriptor in its first argument; exec closes that in the server. The start time is read
# here, by the parent: a server that ended at once has an entry in /proc until its parent has gone.
_BETWEEN = """
import os, signal, sys
report = int(sys.argv[1])
# Ignored signals are inherited: whoever started this in the background ignores these, a server must not.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# Ignored, it would take a child's entry in /proc away at its end.
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.set_inheritable(report, False)
ready, failed = os.pipe()
pid = os.fork()
if pid == 0:
    os.setsid()
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        os.write(failed, str(error.errno).encode())
    os._exit(127)
os.close(failed)
error = os.read(ready, 16)
if error:
    os.write(report, b"-" + error)
else:
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = file.read().rpartition(b")")[2].split()[19]
    os.write(report, b"%d %b" % (pid, ticks))
os._exit(0)
"""


def environment(added: dict[str, str | None]) -> dict[str, str]:
    """The helper's own environment without what ssh and sudo add to it, and `added` (null removes one).

    No login file is read: an inventory names the interpreter and every variable that the server needs.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SSH_", "SUDO_"))}
    for key, value in added.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value
    return kept


def boot_log(stable: str, boot_id: str, before: bool = False) -> str:
    """`dir/stem.BOOT.suffix` beside the stable name `dir/stem.suffix`."""
    stem, suffix = os.path.splitext(stable)
    return f"{stem}.before-{boot_id}{suffix}" if before else f"{stem}.{boot_id}{suffix}"


def spawn(argv: list[str], env: dict[str, str], cwd: str | None, log_handle: int) -> tuple[int, int]:
    """(pid, start in ticks) of a detached process that writes to `log_handle`; it may have ended since.

    OpError when it cannot be executed.
    """
    import subprocess

    report_in, report_out = os.pipe()
    try:
        between = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BETWEEN, str(report_out), *argv],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log_handle,
            stderr=log_handle,
            pass_fds=(report_out,),
            start_new_session=True,
        )
    except OSError as error:
        raise op_error(error, error.filename or argv[0]) from None
    finally:
        os.close(report_out)
    try:
        answer = os.read(report_in, 64).decode()
    finally:
        os.close(report_in)
        between.wait()
    if answer.startswith("-"):
        number = int(answer[1:])
        raise op_error(OSError(number, f"cannot be executed: {os.strerror(number)}"), argv[0])
    if not answer:
        raise OpError("internal", f"{argv[0]}: the process in between ended with {between.returncode}")
    pid, ticks = answer.split()
    return int(pid), int(ticks)


def _take_stable_name(stable: str, own: str, boot_id: str) -> str | None:
    """Make the stable name lead to this boot's log; a file that stood there is renamed, never truncated."""
    kept = None
    folder = os.path.dirname(stable)
    if os.path.lexists(stable) and not os.path.islink(stable):
        kept = boot_log(stable, boot_id, before=True)
        os.rename(stable, kept)
    beside = f"{own}.link"
    if os.path.lexists(beside):
        os.unlink(beside)
    os.symlink(os.path.basename(own), beside)
    os.replace(beside, stable)
    sync_directory(folder)
    return kept


def startable(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{program, env: {added}, cwd, log} -> {problems: [text]}: why a start would fail here.

    Looks as `start` would: the program on the PATH that it would have, the folder, the log's place.
    """
    import shutil

    problems = []
    program, cwd, log = str(params["program"]), params.get("cwd"), absolute(params["log"])
    base = cwd if cwd and os.path.isdir(cwd) else os.getcwd()
    named = program if os.sep not in program else os.path.join(base, program)
    if shutil.which(named, path=environment(params.get("env") or {}).get("PATH")) is None:
        problems.append(f"{program} is not there, or cannot be executed")
    if cwd is not None and not os.path.isdir(cwd):
        problems.append(f"the folder {cwd} (cwd) is not there")
    folder = os.path.dirname(log)
    if not os.path.isdir(folder):
        problems.append(f"the folder {folder} (of the log) is not there")
    elif not os.access(folder, os.W_OK | os.X_OK):
        problems.append(f"the folder {folder} (of the log) is not writable")
    elif os.path.lexists(log) and not os.path.islink(log) and not os.path.isfile(log):
        problems.append(f"{log} (the log) is neither a file nor a link")
    return {"problems": problems}


@changes
def start(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Start a server. {argv, env: {added}, cwd, log: stable path, boot_id, record: {redacted arguments}}

    -> {pid, starttime_ticks, start_time, alive: did it still run at the end of this, boot_id,
        log: this boot's file, log_stable, kept: path|null,
        log_problem: why the stable name does not lead to this boot's log, null if it does}.
    Standard input is /dev/null, output and error are appended to this boot's log. The boot's record in the
    state directory never holds values of `env`. OpError says why it could not be executed.
    """
    boot_id = identifier(params["boot_id"], "boot id")
    stable = absolute(params["log"])
    argv = [str(item) for item in params["argv"]]
    own = boot_log(stable, boot_id)
    if ctx.state.read_record("boots", boot_id, "boot.json") is not None:
        raise OpError("precondition", f"there is already a boot {boot_id}")
    if (
        os.path.lexists(stable)
        and not os.path.islink(stable)
        and not stat_bits.S_ISREG(os.lstat(stable).st_mode)
    ):
        raise OpError("unsupported", f"{stable}: neither a file nor a link", path=stable)
    record: dict[str, Any] = {
        "boot_id": boot_id,
        "begun": ctx.now(),
        "record": params.get("record"),
        "env_names": sorted(params.get("env") or {}),
        "cwd": params.get("cwd"),
        "log": own,
        "log_stable": stable,
        "log_offset": 0,
        "kernel_boot_id": procfs.boot_id(),
        "pid": None,
    }
    ctx.state.write_record(record, "boots", boot_id, "boot.json")
    try:
        handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        ctx.state.write_record({**record, "failed": str(error.strerror)}, "boots", boot_id, "boot.json")
        raise op_error(error, own) from None
    try:
        pid, ticks = spawn(argv, environment(params.get("env") or {}), params.get("cwd"), handle)
    except OpError as error:
        os.unlink(own)
        ctx.state.write_record({**record, "failed": error.message}, "boots", boot_id, "boot.json")
        raise
    finally:
        os.close(handle)
    found = {"pid": pid, "starttime_ticks": ticks, "start_time": procfs.start_time(ticks)}
    ctx.state.write_record({**record, **found}, "boots", boot_id, "boot.json")
    # The server runs: what goes wrong from here on is told, and is no reason to say that it was not started.
    kept = problem = None
    try:
        kept = _take_stable_name(stable, own, boot_id)
    except OSError as error:
        problem = op_error(error, stable).message
    named = {"log_stable": None if problem else stable, "kept": kept, "log_problem": problem}
    ctx.state.write_record({**record, **found, **named}, "boots", boot_id, "boot.json")
    return {**found, **named, "alive": procfs.alive(pid, ticks), "boot_id": boot_id, "log": own}


OPS = {"start": start, "facts.startable": startable}
