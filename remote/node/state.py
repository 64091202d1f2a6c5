"""The toolkit's directory on the node: lock, journal, originals, one folder per deploy and per boot.

    lock                       who changes the node at this moment (lock.py)
    journal.jsonl              one JSON object per line: what was begun and how it ended
    blobs/<sha256>             originals of replaced files
    deploys/<id>/manifest.json what a deploy replaced, and by what (backup.py)
    boots/<id>/boot.json       a server that was started: arguments, pid and start time, log (server.py)

Made by changing operations only; everything else reads what is there.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH102, PTH103, PTH110, PTH111, PTH112, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import json
import os
from itertools import islice

from . import lock
from .about import default_state_dir
from .base import OpError, notes
from .fsio import absolute, identifier, op_error, read_bytes, replace, sha256, sync_directory, write_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .base import Context

_TAIL_BLOCK = 65536
_ALL = 1 << 30


class State:
    """One helper's view of its state directory, and the lock while this helper holds it."""

    def __init__(self, directory: str | None = None) -> None:
        """`directory` absolute or with ~; None for the default of about.py."""
        self.dir = absolute(os.path.expanduser(directory or default_state_dir()))
        self._nonce: str | None = None

    def path(self, *parts: str) -> str:
        return os.path.join(self.dir, *parts)

    def make(self, *parts: str) -> str:
        """The directory `parts`, made if it is not there (mode 0700). OpError names what is in the way."""
        target = self.path(*parts)
        try:
            os.makedirs(os.path.dirname(self.dir), exist_ok=True)
            for depth in range(len(parts) + 1):
                try:
                    os.mkdir(self.path(*parts[:depth]), 0o700)
                except FileExistsError:
                    continue
                sync_directory(os.path.dirname(self.path(*parts[:depth]).rstrip("/")))
        except OSError as error:
            raise op_error(error, error.filename or target) from None
        return target

    # The lock

    def take_lock(self, who: dict[str, Any]) -> dict[str, Any] | None:
        """Take the lock (again); the dead holder it was taken over from, if any. OpError "locked"."""
        if self.holds_lock():
            return None
        self.make()
        nonce = os.urandom(16).hex()
        took_over = lock.take(self.dir, {**who, **lock.identity(), "nonce": nonce})
        self._nonce = nonce
        return took_over

    def holds_lock(self) -> bool:
        """Does this helper hold the lock, as the lock file says now (it may have been broken)?"""
        return self._nonce is not None and (lock.read_holder(self.dir) or {}).get("nonce") == self._nonce

    def release_lock(self) -> bool:
        nonce, self._nonce = self._nonce, None
        return nonce is not None and lock.release(self.dir, nonce)

    def close(self) -> None:
        """The helper ends: release the lock if this process holds it."""
        self.release_lock()

    # Records

    def read_record(self, *parts: str) -> dict[str, Any] | None:
        """One JSON record; None when there is none, {"unreadable": why} when it is damaged."""
        path = self.path(*parts)
        try:
            record = json.loads(read_bytes(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return {"unreadable": op_error(error, path).message}
        except ValueError as error:
            return {"unreadable": f"{path}: {error}"}
        if not isinstance(record, dict):
            return {"unreadable": f"{path}: not a JSON object"}
        if parts[0] == "deploys" and not _tells_files(record, parts[1]):
            return {"unreadable": f"{path}: not the record of that deploy"}
        return record

    def write_record(self, record: dict[str, Any], *parts: str) -> None:
        """Replace one JSON record, durably and at once. OpError."""
        self.make(*parts[:-1])
        try:
            replace(self.path(*parts), json.dumps(record, indent=1).encode())
        except OSError as error:
            raise op_error(error, self.path(*parts)) from None

    def latest(self, kind: str, limit: int) -> list[dict[str, Any]]:
        """The last `limit` records of "deploys" (manifest.json) or "boots" (boot.json), oldest first."""
        name = {"deploys": "manifest.json", "boots": "boot.json"}[kind]
        try:
            folders = os.listdir(self.path(kind))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise op_error(error, self.path(kind)) from None
        found = []
        for folder in folders:
            record = self.read_record(kind, folder, name)
            if record is not None:
                found.append(
                    {"begun": os.stat(self.path(kind, folder, name)).st_mtime, "id": folder, **record}
                )
        found.sort(key=lambda record: record["begun"])
        return found[max(0, len(found) - limit) :]

    def interrupted(self) -> list[str]:
        """The deploys that began to replace files and did not come to an end, oldest first."""
        return [record["id"] for record in self.latest("deploys", _ALL) if record.get("pending")]

    # Originals

    def keep(self, data: bytes) -> str:
        """Store a content under its hash, durably, and return its path. OpError."""
        target = os.path.join(self.make("blobs"), sha256(data))
        try:
            if os.path.exists(target) and sha256(read_bytes(target)) == os.path.basename(target):
                return target
            replace(target, data)
        except OSError as error:
            raise op_error(error, target) from None
        return target

    def kept(self, digest: str) -> bytes:
        """A stored content, checked against its hash. OpError "missing" when it is gone or damaged."""
        path = self.path("blobs", identifier(digest, "content hash"))
        try:
            data = read_bytes(path)
        except OSError as error:
            raise op_error(error, path) from None
        if sha256(data) != digest:
            raise OpError("missing", f"{path} is damaged: its content has another hash", path=path)
        return data

    # The journal

    def journal(self, entry: dict[str, Any]) -> None:
        """Append one entry, durably: one write, so that entries of two processes never mix. OpError."""
        self.make()
        path = self.path("journal.jsonl")
        line = json.dumps(entry).encode() + b"\n"
        try:
            if not os.path.exists(path):
                write_new(path, b"")
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    line = b"\n" + line  # the last writer died within its line
                if os.write(handle, line) != len(line):
                    raise OSError(28, "the entry could be written in part only")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise op_error(error, path) from None

    def journal_tail(self, limit: int) -> list[dict[str, Any]]:
        """The last `limit` entries, oldest first. A damaged line is {"unreadable": its beginning}."""
        newest = islice(self._lines_newest_first(), limit)
        return [_entry(line) for line in newest][::-1]

    def last_purge(self) -> float | None:
        """When bytecode was last purged, however many entries ago that is; None when none ever was."""
        for line in self._lines_newest_first():
            entry = _entry(line) if b'"purge"' in line else {}
            begun = (entry.get("op"), entry.get("phase")) == ("purge", "begin")
            if begun and isinstance(entry.get("time"), (int, float)):
                return float(entry["time"])
        return None

    def _lines_newest_first(self) -> Iterator[bytes]:
        """The journal's lines, read from its end and no further than they are asked for. OpError."""
        path, text = self.path("journal.jsonl"), b""
        try:
            with open(path, "rb") as file:
                position = file.seek(0, os.SEEK_END)
                while position:
                    step = min(_TAIL_BLOCK, position)
                    position -= step
                    file.seek(position)
                    # What precedes the first line feed may begin in the block before this one.
                    text, *lines = (file.read(step) + text).split(b"\n")
                    yield from (line for line in reversed(lines) if line.strip())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise op_error(error, path) from None
        if text.strip():
            yield text


def _tells_files(record: dict[str, Any], deploy_id: str) -> bool:
    """Does it tell of each file what putting it back needs (originals.py)?"""
    try:
        entries = [*record.get("files", ()), *(record.get("pending") or ())]
        texts = [entry[key] for entry in entries for key in ("named", "path", "staged", "after_sha256")]
        texts += [entry["original"]["kind"] for entry in entries]
        return all(isinstance(text, str) for text in texts) and (
            not entries or record["deploy_id"] == deploy_id
        )
    except (KeyError, TypeError):
        return False


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"unreadable": line[:200].decode("utf-8", "replace")}


def state(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {dir, exists, lock, lock_alive, deploys, boots, interrupted, journal_tail, purged}.

    purged: when bytecode was last purged, in seconds since the epoch, or null.
    """
    store: State = ctx.state
    return {
        "dir": store.dir,
        "exists": os.path.isdir(store.dir),
        **lock.facts({}, ctx),
        "deploys": store.latest("deploys", 20),
        "boots": store.latest("boots", 20),
        "interrupted": store.interrupted(),
        "journal_tail": store.journal_tail(50),
        "purged": store.last_purge(),
    }


def journal_read(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{limit} -> {entries}: the journal's last entries, oldest first."""
    return {"entries": ctx.state.journal_tail(int(params.get("limit") or 50))}


@notes
def journal_append(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{entries} -> {appended}. An entry without a time gets the node's."""
    for entry in params["entries"]:
        ctx.state.journal({"time": ctx.now(), **entry})
    return {"appended": len(params["entries"])}


def history(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{limit} -> {journal, deploys, boots}: the last `limit` of each, oldest first."""
    limit = int(params.get("limit") or 50)
    return {
        "journal": ctx.state.journal_tail(limit),
        "deploys": ctx.state.latest("deploys", limit),
        "boots": ctx.state.latest("boots", limit),
    }


OPS = {
    "facts.state": state,
    "journal_read": journal_read,
    "journal_append": journal_append,
    "history": history,
}
