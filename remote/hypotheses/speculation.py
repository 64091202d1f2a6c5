"""Does the server speculate as it was asked to: algorithm, draft, numbers, and real acceptance?"""

from __future__ import annotations

import json
from typing import Any

from ..checks import Evidence
from ..intent import draft_config_path, model_config_path, speculative_args
from ..picture import Picture, Unreadable
from ..proofs.server_args import Arguments, arguments, running
from ..sglang import metrics, speculation
from ..sglang.adjustments import same
from ..sglang.modelpath import same_path
from .base import Cause, Hypothesis, algorithm_of, command, in_inventory

_NUMBERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
# environ.py and speculative/spec_utils.py of 0.5.4 to 0.5.23: on if the length is above 0, then the number
# of accepted tokens is drawn, and what the draft says is not looked at.
_SIMULATED = "SGLANG_SIMULATE_ACC_LEN"
_SIMULATED_MORE = ("SGLANG_SIMULATE_ACC_METHOD", "SGLANG_SIMULATE_ACC_TOKEN_MODE")


def off(cause: Cause, picture: Picture) -> Hypothesis:
    """No algorithm in effect, or a generation without a single verification."""
    wanted = algorithm_of(speculative_args(picture.node.server))
    found = arguments(picture)
    if wanted is None:
        seen = Evidence("inventory", "no speculative-algorithm")
        fix = in_inventory(picture, "set speculative-algorithm: EAGLE3")
        return cause.holds("the inventory asks for no speculation", seen, remedy=fix)
    if not found.tell("speculative_algorithm"):
        return _not_told(cause, picture, found)
    effective = algorithm_of(found.values)
    seen = Evidence(found.source, f"speculative_algorithm = {effective}")
    if effective is None:
        says = f"asked for {wanted}, and the server runs without"
        return cause.holds(says, seen, remedy=command(picture, "restart"))
    answer = _generation(picture)
    if answer is None or (answer.completion_tokens or 0) < 2:
        return cause.refuted(f"it runs with {effective}", seen)
    # The first token comes from the prefill; each further one from a verification, where there are any.
    count = Evidence("POST /generate", f"{answer.completion_tokens} tokens, {answer.verify_ct or 0} verified")
    if not answer.verify_ct:
        says = f"it is set to {effective}, and a generation went without any verification"
        return cause.holds(says, seen, count, remedy=command(picture, "logs"))
    return cause.refuted(f"it runs with {effective}, and verifies drafts", seen, count)


def _not_told(cause: Cause, picture: Picture, found: Arguments) -> Hypothesis:
    says = found.source if found.values is None else f"{found.source} does not tell the algorithm"
    return cause.unknown(says, remedy=command(picture, "logs", "--args"))


def _generation(picture: Picture) -> metrics.Generation | None:
    reply = (picture.facts.get("http") or {}).get("generate") or {}
    if reply.get("status") != 200:
        return None
    try:
        value = json.loads(reply["body"])
    except (KeyError, TypeError, ValueError):
        return None
    return metrics.generation(value) if isinstance(value, dict) else None


def alias(cause: Cause, picture: Picture) -> Hypothesis:
    """NEXTN is EAGLE, and EAGLE captures no hidden states for an EAGLE-3 draft (sglang PR 21272)."""
    found = arguments(picture)
    if not found.tell("speculative_algorithm"):
        return _not_told(cause, picture, found)
    effective = algorithm_of(found.values)
    asked = speculative_args(picture.node.server).get("speculative_algorithm")
    seen = Evidence(found.source, f"speculative_algorithm = {effective} (inventory: {asked})")
    if effective in ("EAGLE3", None):
        return cause.refuted(f"it is {effective}", seen)
    if not any("eagle3" in name.lower() for name in picture.draft_architectures):
        if algorithm_of({"speculative_algorithm": asked}) == "EAGLE3":
            return cause.holds(
                f"asked for EAGLE3, it runs {effective}", seen, remedy=command(picture, "restart")
            )
        return cause.unknown(
            f"it is {effective}, and the draft's architecture is not known to be EAGLE-3",
            seen,
            remedy=command(picture, "verify"),
        )
    says = f"it runs {effective}, for which no hidden states are captured, with an EAGLE-3 draft"
    if algorithm_of({"speculative_algorithm": asked}) == "EAGLE3":
        return cause.holds(says, seen, remedy=command(picture, "restart"))
    return cause.holds(says, seen, remedy=in_inventory(picture, "set speculative-algorithm: EAGLE3"))


def draft_path(cause: Cause, picture: Picture) -> Hypothesis:
    """No draft, none at that place, or another one than the inventory's."""
    path = picture.node.server.draft_model_path
    fix = in_inventory(picture, "set draft_model_path")
    if path is None:
        return cause.holds("the inventory names no draft_model_path", remedy=fix)
    found = arguments(picture)
    used = found.get("speculative_draft_model_path")
    if used is not None and not same("speculative_draft_model_path", path, used):
        seen = Evidence(found.source, f"speculative_draft_model_path = {used!r}, wanted {path!r}")
        return cause.holds(f"the server's draft is {used}", seen, remedy=command(picture, "restart"))
    if found.values is not None and algorithm_of(found.values) and used is None and _complete(picture):
        seen = Evidence(found.source, "speculative_draft_model_path is not set")
        return cause.holds("the server has no draft path", seen, remedy=command(picture, "restart"))
    weights = picture.section("weights")
    if not weights["exists"]:
        return cause.holds(f"{path}: {weights['problem']}", Evidence(path, "absent"), remedy=fix)
    if picture.config is not None and picture.config.facts.get("exists") is False:
        return cause.holds(
            f"{picture.config.path} does not exist", Evidence(picture.config.path, "absent"), remedy=fix
        )
    seen = Evidence(path, f"{len(weights['files'])} files")
    if used is None:
        return cause.unknown(f"it exists; {found.source}", seen, remedy=command(picture, "status"))
    return cause.refuted(f"{path}", seen, Evidence(found.source, f"speculative_draft_model_path = {used!r}"))


def _complete(picture: Picture) -> bool:
    """The server itself told its arguments: one that is absent there is not set."""
    return picture.effective is not None


def draft_is_target(cause: Cause, picture: Picture) -> Hypothesis:
    """EAGLE3 without a draft of its own loads the target as the draft (sglang issue 36528)."""
    server, found = picture.node.server, arguments(picture)
    pairs = [
        ("inventory", server.draft_model_path, server.model_path),
        (found.source, found.get("speculative_draft_model_path"), found.get("model_path")),
        ("real paths of config.json", *_real_paths(picture)),
    ]
    known = [(source, draft, target) for source, draft, target in pairs if draft and target]
    for source, draft, target in known:
        if same_path(str(draft), str(target)):
            fix = in_inventory(picture, "set draft_model_path to the draft's own directory")
            return cause.holds(
                f"both are {draft}", Evidence(source, f"draft and target: {draft}"), remedy=fix
            )
    if not known:
        return cause.unknown("no draft path is known", remedy=command(picture, "status"))
    return cause.refuted(
        f"{known[0][1]} is not {known[0][2]}", *(Evidence(s, f"draft {d}, target {t}") for s, d, t in known)
    )


def _real_paths(picture: Picture) -> tuple[str | None, str | None]:
    configs = picture.facts.get("configs") or {}
    draft = configs.get(draft_config_path(picture.node.server) or "") or {}
    target = configs.get(model_config_path(picture.node.server)) or {}
    if not (draft.get("exists") and target.get("exists")):
        return None, None
    return draft.get("real_path"), target.get("real_path")


def adjusted(cause: Cause, picture: Picture) -> Hypothesis:
    """With topk 1 SGLang sets the draft tokens to steps + 1, with one line in the log (server_args.py)."""
    wanted = speculative_args(picture.node.server)
    would = _would_change(picture, wanted)
    if would:
        fix = in_inventory(picture, "set the numbers that it would use")
        return cause.holds(would[0].text, *would, remedy=fix)
    found = arguments(picture)
    asked = {name: wanted[name] for name in _NUMBERS if wanted.get(name) is not None}
    known = {name: found.get(name) for name in asked if found.get(name) is not None}
    wrong = [name for name, value in known.items() if not same(name, asked[name], value)]
    if wrong:
        seen = [
            Evidence(found.source, f"{name} = {known[name]!r}, asked for {asked[name]!r}") for name in wrong
        ]
        return cause.holds(seen[0].text, *seen, remedy=command(picture, "restart"))
    if len(known) < len(asked):
        why = found.source if found.values is None else "the numbers are not told"
        return cause.unknown(why, remedy=command(picture, "logs", "--args"))
    text = ", ".join(f"{name.removeprefix('speculative_')} {value}" for name, value in known.items())
    return cause.refuted(text or "none was asked for", Evidence(found.source, text))


def _would_change(picture: Picture, wanted: dict[str, Any]) -> list[Evidence]:
    """What this version makes of the inventory's numbers, predicted."""
    if picture.version is None:
        return []
    changes = speculation.normalise(picture.version, wanted, env=picture.node.server.env)
    return [
        Evidence(f"SGLang {picture.version}", f"{c.name} {c.requested!r} becomes {c.effective!r}: {c.why}")
        for c in changes
        if c.name in _NUMBERS and not c.fatal
    ]


def simulated(cause: Cause, picture: Picture) -> Hypothesis:
    """A benchmark knob of SGLang that draws the accepted length instead of verifying."""
    env = _environment(picture)
    where = "the running server's environment"
    if env is None and running(picture) is False:
        env, where = dict(picture.node.server.env), "inventory (no server runs)"
    if env is None:
        says = "the running server's environment cannot be read"
        return cause.unknown(says, remedy=command(picture, "status"))
    value = env.get(_SIMULATED)
    more = [Evidence(where, f"{name}={env[name]}") for name in _SIMULATED_MORE if name in env]
    seen = Evidence(where, f"{_SIMULATED}={value if value is not None else '(unset)'}")
    try:
        length = float(value) if value not in (None, "") else -1.0
    except ValueError:
        length = -1.0
    if length > 0:
        fix = in_inventory(picture, f"take {_SIMULATED} out of env and of the login files")
        return cause.holds(
            f"every step accepts {length:g} tokens, whatever the draft says", seen, *more, remedy=fix
        )
    return cause.refuted("it is not set" if value is None else f"{value} turns it off", seen)


def _environment(picture: Picture) -> dict[str, str] | None:
    """SGLANG_* of our server, from its launcher: the ranks' titles overwrite their own."""
    try:
        processes = picture.section("procs")["processes"]
    except Unreadable:
        return None
    server = picture.ownership.server if picture.ownership else None
    members = {member.pid for member in server.members} if server else set()
    found: dict[str, str] | None = None
    for each in processes:
        if each["pid"] in members and each.get("env") is not None:
            found = {**each["env"], **(found or {})}
    return found
