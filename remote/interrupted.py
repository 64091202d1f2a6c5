"""What an earlier run left half done, because it died: put back before anything else is planned."""

from __future__ import annotations

from .bundles import Bundle
from .errors import RefusedError
from .observe import observe
from .picture import Picture
from .reporting import Reporter
from .session import Session
from .work import await_lock, locked


def pending(picture: Picture) -> list[str]:
    """The deploys that began to replace files and came to no end."""
    deploys = (picture.facts.get("state") or {}).get("deploys", [])
    return [str(each["id"]) for each in deploys if each.get("pending")]


def put_back(session: Session, picture: Picture, reporter: Reporter, *, wait_s: float) -> bool:
    """Put back the originals of interrupted runs; true if there were any, so that the node must be read anew.

    RefusedError when somebody has changed one of these files since: a person has to look.
    """
    ids = pending(picture)
    if not ids:
        return False
    with locked(session, "recover", reporter, seen=picture, wait_s=wait_s) as work:
        reply = work.change("recover", {}, action="recover", detail=", ".join(ids))
    if reply["foreign"]:
        node = session.node.name
        raise RefusedError(
            f"{node}: an interrupted run left these files, which cannot be put back or were changed since: "
            + ", ".join(reply["foreign"]),
            hint=f"compare them with the originals (inv history --node {node}), mend them, run again",
            node=node,
        )
    named = ", ".join(each["deploy_id"] for each in reply["recovered"])
    reporter.note(f"an earlier run was cut off ({named}): its files were put back first")
    return True


def observe_settled(
    session: Session,
    bundle: Bundle,
    reporter: Reporter,
    *,
    dry_run: bool,
    wait_s: float,
    probe: bool = True,
) -> Picture:
    """Read the node for a command that changes it: what an earlier run left half done is settled first.

    A dry run only says so. LockedError at once while somebody else is at work, Outdated after having waited.
    """
    if dry_run:
        picture = observe(session, bundle, probe=probe)
        for each in pending(picture):
            reporter.note(f"deploy {each} was cut off: its files would be put back first")
        return picture
    # In the same round trip, and answered first: a server that does not generate is probed for half a minute.
    asked = session.submit("facts.lock", {})

    def look() -> None:
        found = session.result(asked)
        if found["lock"] is not None and found["lock_alive"] is not False:
            await_lock(session, found["lock"], reporter, wait_s=wait_s)

    picture = observe(session, bundle, probe=probe, meanwhile=look)
    if put_back(session, picture, reporter, wait_s=wait_s):
        picture = observe(session, bundle, probe=probe)
    return picture
