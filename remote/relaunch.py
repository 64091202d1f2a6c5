"""The second half of every change of a server: end what is stale, free the GPUs, start, wait."""

from __future__ import annotations

from .free import free_gpus
from .health import wait_ready
from .intent import our_gpus
from .kill import kill_stale
from .plan import Plan
from .start import start_server
from .work import Work, unchanged


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
        work.actions.append(wait_ready(work.session, awaited, work.reporter))
