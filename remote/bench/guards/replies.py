"""Guards on the replies: are they answers that a draft could be measured by?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..meanwhile import PRETENDED
from ..measured import Request
from ..repeats import by_prompt, means
from .kinds import BOTH, LEAST_PROMPTS, SPEED, Guard, Seen

FAILED_SHARE = 0.05
# A server that gives no answer for so many times as long as the longest one took has stopped.
SILENT_TIMES = 3.0
# A request that ended before a quarter of its tokens, and how many such requests spoil a run.
SHORT_SHARE, SHORT_REQUESTS = 0.25, 0.5
# Of n tokens the first needs no verification and the last ones are cut off: the accept length is off by some
# 1 / n, and takes few values. Of 9 tokens a good draft's is 2.25 or 3, whatever it accepts.
FEWEST_TOKENS = 16
REPEATED, REPEATING_REQUESTS = 0.5, 0.2
# An accept length this near to its maximum is no draft's merit, in so many of the requests.
NEAR_MAXIMUM, MAXIMAL_REQUESTS = 0.98, 0.5
CONSTANT_VERIFICATIONS = 10
# Accepted drafts per verification. Where next to none is accepted (case 037), n tokens take n - 1
# verifications or a few less: answers of one length have one accept length, and nothing is made up.
NEXT_TO_NONE = 0.05


def complete(seen: Seen) -> Guard:
    """Did the run come to its end, and with enough prompts?"""
    phase = seen.phase
    prompts = len(by_prompt(phase.requests))
    done = f"{len(phase.requests)} of {phase.asked} requests"
    if prompts < len(phase.requests):
        done += f", different prompts: {prompts}"
    if phase.ended == "cancelled":
        return Guard("complete", "spoils", f"interrupted after {done}", BOTH)
    if prompts < LEAST_PROMPTS:
        return Guard("complete", "spoils", f"{done}: fewer than {LEAST_PROMPTS} prompts say too little", BOTH)
    if phase.ended == "limit":
        detail = f"the time limit came after {done}"
        silent_s = phase.elapsed_s - max(r.began_s + r.e2e_s for r in phase.requests)
        if silent_s > SILENT_TIMES * max(r.e2e_s for r in phase.requests):
            return Guard("complete", "spoils", f"{detail}, and none ended in the last {silent_s:.0f} s", BOTH)
        return Guard("complete", "shown", detail)
    return Guard("complete", "ok", done)


def failed(seen: Seen) -> Guard:
    """Requests that gave no whole answer are in no figure: too many of them, and the rest is a selection."""
    failures = [each for each in seen.phase.failures if not each.error.startswith("given up")]
    total = len(seen.phase.requests) + len(failures)
    if not failures:
        return Guard("failed-requests", "ok", "none")
    detail = f"{len(failures)} of {total} failed, the first: {failures[0].prompt}: {failures[0].error}"
    if len(failures) > FAILED_SHARE * total:
        return Guard("failed-requests", "spoils", detail, BOTH)
    return Guard("failed-requests", "shown", detail)


def early(seen: Seen) -> Guard:
    """Requests that ended before --max-tokens: natural ends are fine, very short answers measure little."""
    requests, least = seen.phase.requests, max(round(SHORT_SHARE * seen.max_tokens), FEWEST_TOKENS)
    ended = [r for r in requests if (r.completion_tokens or 0) < seen.max_tokens]
    short = [r for r in requests if (r.completion_tokens or 0) < least]
    if seen.max_tokens < least:
        detail = f"{len(short)} of {len(requests)} answers have fewer than {least} tokens: they tell little"
        detail += f" (--max-tokens is {seen.max_tokens})"
    elif ended:
        detail = f"{len(ended)} of {len(requests)} ended before {seen.max_tokens} tokens,"
        detail += f" {len(short)} of them before {least}"
    else:
        return Guard("ended-early", "ok", f"every request gave {seen.max_tokens} tokens")
    if len(short) > SHORT_REQUESTS * len(requests):
        return Guard("ended-early", "spoils", detail, BOTH)
    return Guard("ended-early", "shown", detail)


def repeating(seen: Seen) -> Guard:
    """A model that goes round in circles is easy to draft for."""
    known = [r for r in seen.phase.requests if r.repetition is not None]
    if not known:
        return Guard("repetition", "unknown", "the replies hold no token ids, or too few tokens")
    bad = [r for r in known if (r.repetition or 0) > REPEATED]
    if not bad:
        worst = max(r.repetition or 0 for r in known)
        return Guard("repetition", "ok", f"at most {worst:.0%} of an answer had been said before")
    detail = f"{len(bad)} of {len(known)} answers repeat themselves, the first: {bad[0].prompt}"
    if len(bad) > REPEATING_REQUESTS * len(known):
        return Guard("repetition", "spoils", detail, BOTH)
    return Guard("repetition", "shown", detail)


def maximal(seen: Seen) -> Guard:
    """Nearly every draft accepted: degenerate text, or acceptance that is not decided by the target."""
    steps = seen.speculation.chain_steps
    lengths = [r.accept_len for r in seen.phase.requests if r.accept_len is not None]
    if steps is None or not lengths:
        return Guard("accept-at-maximum", "ok", "no chain of drafts to accept")
    high = [n for n in lengths if n >= NEAR_MAXIMUM * (steps + 1)]
    detail = f"{len(high)} of {len(lengths)} requests accept nearly all {steps} drafts"
    if len(high) > MAXIMAL_REQUESTS * len(lengths):
        return Guard("accept-at-maximum", "spoils", detail, BOTH)
    return Guard("accept-at-maximum", "shown" if high else "ok", detail)


def constant(seen: Seen) -> Guard:
    """Different prompts never give the same accept length to the last digit: such figures are made up."""
    if seen.meanwhile.pretended is not None:
        detail = f"its environment sets the accept length: {PRETENDED}={seen.meanwhile.pretended}"
        return Guard("constant-values", "spoils", detail, BOTH)
    requests = seen.phase.requests
    told = [r for r in requests if (r.verify_ct or 0) >= CONSTANT_VERIFICATIONS]
    if any(_accepted(r) > NEXT_TO_NONE for r in told) and _same(told, lambda r: r.accept_len):
        return Guard("constant-values", "spoils", "every request has the same accept length", BOTH)
    if _same(requests, lambda r: r.output_tok_s):
        return Guard("constant-values", "spoils", "every request has the same speed to 1 in 10,000", (SPEED,))
    return Guard("constant-values", "ok", "requests differ, as they do")


def _accepted(request: Request) -> float:
    """Accepted drafts per verification: each gives one token of the target's own, the prefill the first."""
    verifications = request.verify_ct or 0
    return ((request.completion_tokens or 0) - 1 - verifications) / verifications


def _same(requests: Sequence[Request], value: Callable[[Request], float | None]) -> bool:
    """Of different prompts: a repeat may well give the same again."""
    known = means(requests, value).values()
    return len(known) >= LEAST_PROMPTS and max(known) - min(known) <= 1e-4 * max(known)
