"""The second half of every change of a server: end what is stale, free the GPUs, start, wait."""

from __future__ import annotations

from .bundles import Bundle
from .errors import FixopsError, UnhealthyError
from .free import free_gpus
from .health import wait_ready
from .intent import our_gpus
from .kill import kill_stale
from .observe import observe
from .picture import Picture
from .plan import Plan
from .running import Boot
from .session import Session
from .start import start_server
from .work import Done, Work, unchanged, way_back


def relaunch(work: Work, plan: Plan) -> None:
    """Carry out the plan's last four actions, in their order; each is told as it comes true.

    Stops with UnhealthyError at the first that does not. Without a restart in the plan the server that
    runs is left alone; one that is still starting is waited for.
    """
    work.actions.append(kill_stale(work, plan))
    work.actions.append(free_gpus(work, plan.action("free-gpus"), our_gpus(work.session.node)))
    done, boot = start_server(work, plan)
    work.actions.append(done)
    awaited = boot or plan.awaits
    if awaited is None:
        work.actions.append(unchanged(plan.action("health")))
    else:
        work.actions.append(come_up(work, awaited))


def attempt(work: Work, plan: Plan) -> UnhealthyError | None:
    """`relaunch`, and the reason where the server does not come up: what the node is like then is to be read
    all the same."""
    try:
        relaunch(work, plan)
    except UnhealthyError as error:
        work.failed(error)
        error.data = {**work.told(), **error.data}
        # A server that hangs is waited for once more: half a minute without a word would be long.
        work.reporter.note("it failed; reading what the node is like now")
        return error
    return None


def observe_after(session: Session, bundle: Bundle, stopped: UnhealthyError | None) -> Picture:
    """The node after the change. Where it cannot be read any more, `stopped` is what is told."""
    try:
        return observe(session, bundle)
    except (FixopsError, KeyboardInterrupt):
        if stopped is not None:
            raise stopped from None
        raise


def come_up(work: Work, boot: Boot) -> Done:
    """The wait for a boot, journalled: UnhealthyError with the first cause when it fails."""
    back = way_back(work.told()["actions"], work.session.node.name)

    def wait() -> Done:
        return wait_ready(work.session, boot, work.reporter, way_back=back)

    return work.watched("health", "wait until it generates", wait)
