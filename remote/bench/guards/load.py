"""Guards on the machine's state and on what else it did: they spoil speed, not acceptance."""

from __future__ import annotations

from ...sglang.decode import summarise
from .. import warmup
from ..meanwhile import not_used
from .kinds import SPEED, Guard, Seen, State, cached_share

IDLE_S = 5.0
BUSY_GENERATOR = 0.8
CLOCK_SHARE, CLOCK_S = 0.1, 0.05
CACHED = 0.2
# A stray request (somebody looks at the server's health) costs nothing; more of them cost a share of a step.
STRAY_SHARE = 0.1


def settled(seen: Seen) -> Guard:
    """Whether the server was warm (case 107). What is left widens every speed that is judged."""
    runs, spread = len(seen.rates), warmup.spread(seen.rates)
    if not seen.rates:
        return Guard("warm-up", "spoils", "there was none", (SPEED,))
    if warmup.settled(seen.rates):
        return Guard("warm-up", "ok", f"three runs within {spread or 0:.1%} after {runs} runs")
    if spread is None:
        return Guard("warm-up", "spoils", f"only {runs} runs fitted into the time", (SPEED,))
    detail = f"the last three of {runs} runs still differ by {spread:.1%}: added to the speed's interval"
    return Guard("warm-up", "shown", detail)


def idle(seen: Seen) -> Guard:
    """The first interval after idle is slow, and the log's first decode line after it counts idle time."""
    left_out = sum(sample.after_idle for sample in seen.meanwhile.samples or ())
    if seen.gap_s is None:
        return Guard("idle-before", "unknown", "there was no warm-up before the run")
    if seen.gap_s > IDLE_S:
        return Guard("idle-before", "spoils", f"idle for {seen.gap_s:.1f} s before the run", (SPEED,))
    detail = f"{max(0.0, seen.gap_s):.2f} s between warm-up and run"
    if left_out:
        detail += f"; {left_out} decode lines after idle left out of the log's figures"
    return Guard("idle-before", "ok", detail)


def cached(seen: Seen) -> Guard:
    """Prompts that were in the server's cache cost no prefill: the whole time is shorter, decoding is not."""
    known = [r for r in seen.phase.requests if r.told.cached_tokens is not None and r.told.prompt_tokens]
    if not known:
        return Guard("cache-hits", "unknown", "the replies do not tell")
    share = cached_share(seen.phase.requests) or 0.0
    state: State = "ok" if share < CACHED else "shown"
    return Guard("cache-hits", state, f"{share:.0%} of the prompt tokens came from the cache")


def others(seen: Seen) -> Guard:
    """Requests that are not ours take a share of every step."""
    found, samples = seen.meanwhile.strangers, seen.meanwhile.samples or ()
    crowds = [s.running for s in samples if s.running is not None and s.running > seen.concurrency]
    details = []
    if found:
        details.append(f"{len(found)} requests of others, the first: {found[0]}")
    if crowds:
        details.append(f"up to {max(crowds)} requests ran at once, of which {seen.concurrency} were ours")
    if details:
        many = len(found or ()) > STRAY_SHARE * seen.phase.asked or len(crowds) > STRAY_SHARE * len(samples)
        detail = "; ".join(details)
        return (
            Guard("other-load", "spoils", detail, (SPEED,)) if many else Guard("other-load", "shown", detail)
        )
    if found is None and not samples:
        return Guard("other-load", "unknown", _unseen(seen, "neither requests nor decode lines"))
    return Guard("other-load", "ok", "no request but ours")


def queued(seen: Seen) -> Guard:
    """Requests that wait for a place are no measure of generation."""
    longest = max((s.queued for s in seen.meanwhile.samples or () if s.queued is not None), default=0)
    if not seen.meanwhile.samples:
        return Guard("queueing", "unknown", _unseen(seen, "no decode line"))
    if longest:
        detail = f"up to {longest} requests waited: --concurrency is above what the server runs at once"
        return Guard("queueing", "shown", detail)
    return Guard("queueing", "ok", "no request waited")


def graphs(seen: Seen) -> Guard:
    """Steps outside the CUDA graphs are the usual cause of a slow server with a good accept length (111)."""
    summary = summarise(seen.meanwhile.samples or ())
    if summary is None or summary.graph_share is None:
        return Guard("cuda-graph", "unknown", _unseen(seen, "no decode line that tells"))
    share = 1 - summary.graph_share
    if share > 0:
        return Guard("cuda-graph", "shown", f"{share:.0%} of the decode lines say 'cuda graph: False'")
    return Guard("cuda-graph", "ok", "every decode line from a graph")


def _unseen(seen: Seen, what: str) -> str:
    """Why the log tells nothing: it holds `what`, or it is not the measured server's."""
    return not_used(seen.meanwhile) or f"the server's log shows {what}"


def generator(seen: Seen) -> Guard:
    """The load generator must not be what is measured."""
    phase = seen.phase
    detail = f"{phase.cpu_share:.0%} of one core, {phase.peak_rss_mib or '?'} MiB"
    if phase.cpu_share > BUSY_GENERATOR:
        return Guard("generator", "spoils", f"the load generator itself was busy: {detail}", (SPEED,))
    return Guard("generator", "ok", detail)


def clock(seen: Seen) -> Guard:
    """The server's own end-to-end times and ours must agree."""
    both = [r for r in seen.phase.requests if r.told.e2e_s is not None]
    if not both:
        return Guard("clock", "unknown", "the server tells no times")
    worst = max(both, key=lambda r: abs(r.e2e_s - (r.told.e2e_s or 0)))
    apart_s = abs(worst.e2e_s - (worst.told.e2e_s or 0))
    detail = f"server and load generator at most {apart_s * 1000:.0f} ms apart"
    if apart_s > max(CLOCK_S, CLOCK_SHARE * worst.e2e_s):
        detail = f"{worst.prompt}: {worst.e2e_s:.2f} s here, {worst.told.e2e_s:.2f} s by the server's account"
        return Guard("clock", "shown", detail)
    return Guard("clock", "ok", detail)
