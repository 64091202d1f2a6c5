"""The lock of a state directory: one holder at a time, a dead one known by kernel boot, pid and start time.

`lock` is published with link(2), complete or not at all, and fails if there is one. Whoever takes, takes
over or releases does so while holding flock(2) on `lock.guard`: two that both see a dead holder come one
after the other, and the second sees the first one's lock.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH108, PTH112, PTH118

from __future__ import annotations

import contextlib
import json
import os

from . import procfs
from .base import OpError
from .fsio import op_error, read_bytes, sync_directory, write_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .base import Context


def identity() -> dict[str, Any]:
    """Which process of which kernel, host and process namespace this is."""
    me = procfs.stat(os.getpid()) or {}
    return {
        "pid": os.getpid(),
        "starttime_ticks": me.get("starttime_ticks"),
        "boot_id": procfs.boot_id(),
        "host": os.uname().nodename,
        "pid_ns": procfs.link("/proc/self/ns/pid"),
    }


def read_holder(directory: str) -> dict[str, Any] | None:
    """Who holds the lock: None when nobody does, {"unreadable": why} when that cannot be told."""
    path = os.path.join(directory, "lock")
    try:
        holder = json.loads(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None  # where no directory can be, no lock is
    except OSError as error:
        return {"unreadable": op_error(error, path).message}
    except ValueError:
        holder = None
    sound = isinstance(holder, dict) and _sound(holder)
    return holder if sound else {"unreadable": f"{path} is not a lock of this toolkit"}


def _sound(holder: dict[str, Any]) -> bool:
    """Could this toolkit have written it, as far as who it was and whether that still runs depend on it?"""
    pid = holder.get("pid")
    texts = [holder.get(key) for key in ("who", "command", "host", "boot_id")]
    return all(text is None or isinstance(text, str) for text in texts) and (
        pid is None or (type(pid) is int and 0 < pid < 1 << 31)
    )


def holder_alive(holder: dict[str, Any]) -> bool | None:
    """Does the holder still run? None when it cannot be told from here: then the lock counts as held."""
    here = identity()
    if holder.get("host", here["host"]) != here["host"]:
        return None  # a home shared by several machines, or another container
    if not isinstance(holder.get("boot_id"), str) or not isinstance(holder.get("pid"), int):
        return None
    if holder["boot_id"] != here["boot_id"]:
        return False
    if holder.get("pid_ns", here["pid_ns"]) != here["pid_ns"] or _hidden(holder["pid"]):
        return None
    return procfs.alive(holder["pid"], holder.get("starttime_ticks", -1))


def _hidden(pid: int) -> bool:
    """Is there such a process, but /proc is mounted so that it shows only our own?"""
    if procfs.stat(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def _guard(directory: str) -> Iterator[None]:
    import fcntl

    path = os.path.join(directory, "lock.guard")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise op_error(error, path) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise op_error(error, error.filename or path) from None
    finally:
        os.close(handle)


def take(directory: str, holder: dict[str, Any]) -> dict[str, Any] | None:
    """Take the lock, and return the dead holder that it was taken over from, if any. OpError "locked"."""
    path = os.path.join(directory, "lock")
    staged = f"{path}.{holder['nonce']}"
    try:
        write_new(staged, json.dumps(holder).encode())
    except OSError as error:
        raise op_error(error, staged) from None
    try:
        with _guard(directory):
            dead = read_holder(directory)
            if dead is not None:
                if holder_alive(dead) is not False:
                    raise OpError("locked", "the lock is held by someone else", holder=public(dead))
                os.unlink(path)
            os.link(staged, path)
            sync_directory(directory)
    finally:
        os.unlink(staged)
    return dead and public(dead)


def release(directory: str, nonce: str) -> bool:
    """Release the lock if it is the one taken with `nonce`."""
    with _guard(directory):
        holder = read_holder(directory)
        if holder is None or holder.get("nonce") != nonce:
            return False
        os.unlink(os.path.join(directory, "lock"))
        return True


def break_it(directory: str, expect_pid: int | None) -> dict[str, Any] | None:
    """Remove the lock, whoever holds it, and return the holder. OpError "precondition" on another pid."""
    with _guard(directory):
        holder = read_holder(directory)
        if holder is None:
            return None
        if holder.get("pid") != expect_pid:
            raise OpError("precondition", "the lock is held by another process by now", holder=public(holder))
        os.unlink(os.path.join(directory, "lock"))
        return public(holder)


def public(holder: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in holder.items() if key != "nonce"}


def lock(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{who, command, deploy_id, wait_s} -> {acquired, holder, journal_tail: [last 50], waited_for,
    took_over?}.

    waited_for: the holder that was waited for, null when the lock was free.

    OpError "locked" with `holder` when it is still held after `wait_s` seconds.
    Sends one event {"waiting": holder} when it has to wait.
    """
    waited_for = None
    give_up = ctx.now() + float(params.get("wait_s") or 0)
    wanted = {key: params.get(key) for key in ("who", "command", "deploy_id")}
    while True:
        try:
            took_over = ctx.state.take_lock({**wanted, "since": ctx.now()})
        except OpError as error:
            if error.kind != "locked" or ctx.now() >= give_up:
                raise
            if waited_for is None:
                waited_for = error.data["holder"]
                ctx.event({"waiting": waited_for})
        else:
            result = {
                "acquired": True,
                "holder": public(read_holder(ctx.state.dir) or {}),
                "journal_tail": ctx.state.journal_tail(50),
                "waited_for": waited_for,
            }
            return {**result, "took_over": took_over} if took_over else result
        ctx.wait(0.2)
        ctx.check()


def unlock(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {released: bool}: false when this helper did not hold the lock (any more)."""
    return {"released": ctx.state.release_lock()}


def break_lock(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{expect_pid} -> {released: bool, holder}. `expect_pid` is null for a lock file that cannot be read."""
    if not os.path.isdir(ctx.state.dir):
        return {"released": False, "holder": None}
    holder = break_it(ctx.state.dir, params.get("expect_pid"))
    return {"released": holder is not None, "holder": holder}


def facts(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {lock, lock_alive}: the holder, and whether it still runs (null: not known, or there is none)."""
    holder = read_holder(ctx.state.dir)
    return {
        "lock": holder and public(holder),
        "lock_alive": None if holder is None else holder_alive(holder),
    }


OPS = {"facts.lock": facts, "lock": lock, "unlock": unlock, "break_lock": break_lock}
