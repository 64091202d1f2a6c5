"""One interpretation of the installed source: build the target, start the model runner, run the forwards."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

from . import statements  # noqa: F401  (registers the statement handlers)
from .attributes import find_in_class, get_attribute
from .calls import call
from .machine import Run
from .modules import Modules
from .needs import MODEL_RUNNER, SLICED
from .results import MODES
from .slices import slice_of
from .values import (
    Buffer,
    Class,
    Function,
    Instance,
    NothingCaptured,
    SourceError,
    Stub,
    Tensor,
    Unfollowed,
    show,
)

# Start-up of the model runner: its constructor and, since 0.5.14, what the scheduler calls then, in this
# order (managers/scheduler.py: tp_worker.init_attention_backends(), then tp_worker.init_cuda_graphs()).
_MAX_STATE = 5_000
_START = ("__init__", "init_attention_backends", "init_cuda_graphs")


@dataclass(frozen=True)
class Target:
    """What the wiring is computed for."""

    architecture: str
    num_layers: int
    first_k_dense_replace: int
    draft_config: Mapping[str, object]
    settings: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """One mode in one interpretation. `nothing`: the forward gives no states to what unpacks them."""

    layers: tuple[str, ...] | None = None
    error: str | None = None
    unknown: str | None = None
    call_site: str | None = None
    nothing: bool = False
    where: str = ""


@dataclass
class Scenario:
    """Outcomes of all modes, and the unknowns that were decided on the way: text to `path:line`. `decided`:
    those of them that a forward depends on; `forwards`: outcomes by mode and state of the model."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    forwards: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    steps: int = 0


def play(
    sources: Mapping[str, str],
    target: Target,
    flips: frozenset[str] = frozenset(),
    log: Callable[[str, str], None] | None = None,
    known: Mapping[tuple[str, str], Outcome] | None = None,
) -> Scenario:
    """Interpret the start of a server and one forward in each mode. `known`: forwards already run."""
    scenario = Scenario(forwards=dict(known or {}))
    run = Run(
        Modules(sources, SLICED),
        flips,
        target.settings,
        log=log,
        undecided=scenario.undecided,
        decided=scenario.decided,
    )
    try:
        _play(run, target, scenario)
    except SourceError as error:
        failed = Outcome(error=f"{error.kind}: {error.message}", call_site=run.hook_site, where=run.where)
        scenario.outcomes = dict.fromkeys(MODES, failed)
    except Exception as error:  # a defect of this engine is an unknown, never a traceback at the user's
        reason = str(error) if isinstance(error, Unfollowed) else f"not followed at {run.where}: {error!r}"
        unknown = Outcome(unknown=reason, call_site=run.hook_site, where=run.where)
        scenario.outcomes = {mode: scenario.outcomes.get(mode, unknown) for mode in MODES}
    scenario.steps = run.steps
    return scenario


def _play(run: Run, target: Target, scenario: Scenario) -> None:
    run.quiet = True
    model = run.model = _build(run, target)
    run.overrides["draft config"] = lambda _run, _args, _keywords: _plain_config(target.draft_config)

    def capture(inner: Run, args: list[object], _keywords: dict[str, object]) -> object:
        if args:
            scenario.outcomes["graph"] = Outcome(unknown=show(args[0]), call_site=inner.hook_site)
            return None
        scenario.outcomes["graph"] = _forward(inner, model, "graph", scenario)
        return None

    run.overrides["capture"] = capture
    run.quiet = False
    _start_runner(run, model)
    _check_draft_needs(run, model)
    for mode in ("eager", "overlap"):
        scenario.outcomes[mode] = _forward(run, model, mode, scenario)
    if run.handed is not None:
        scenario.outcomes = {mode: Outcome(unknown=run.handed, call_site=run.hook_site) for mode in MODES}
    if "graph" not in scenario.outcomes:
        raise Unfollowed("no capture of CUDA graphs was found in the model executor")


def _build(run: Run, target: Target) -> Instance:
    cls = _find_class(run, target.architecture)
    text = _target_config(target)
    text.attrs["text_config"] = text
    model = call(run, cls, [text], {})
    if not isinstance(model, Instance):
        raise Unfollowed(f"{target.architecture} could not be built")
    return model


def _find_class(run: Run, name: str) -> Class:
    for path in run.modules.paths():
        module = run.modules.get(path) if "/models/" in path else None
        if module is not None and any(
            isinstance(node, ast.ClassDef) for node in module.parsed.bindings.get(name, ())
        ):
            found = module.lookup(run, name)
            if isinstance(found, Class):
                return found
    raise Unfollowed(f"class {name} was not found in the given sources")


def _target_config(target: Target) -> Stub:
    return Stub(
        "config",
        {
            "num_hidden_layers": target.num_layers,
            "first_k_dense_replace": target.first_k_dense_replace,
            "architectures": [target.architecture],
            "tie_word_embeddings": False,
            "q_lora_rank": 1536,
        },
    )


def _plain_config(config: Mapping[str, object]) -> object:
    # Configuration objects answer missing attributes with AttributeError: an instance of an empty class does.
    # A copy: the interpreted code may change it.
    return Instance(_EMPTY, {str(key): value for key, value in deepcopy(dict(config)).items()})


def _start_runner(run: Run, model: Instance) -> None:
    module = run.modules.get(MODEL_RUNNER)
    cls = module.lookup(run, "ModelRunner") if module is not None else None
    if not isinstance(cls, Class):
        raise Unfollowed(f"ModelRunner was not found in {MODEL_RUNNER}")
    runner = Instance(cls, {"model": model}, lenient=True, fixed=frozenset(("model",)))
    for name in _START:
        method = find_in_class(run, cls, name)
        if isinstance(method, Function) and isinstance(method.node, ast.FunctionDef):
            if not slice_of(run.modules.sliced_trees(), method.node, cls.name):
                continue
            run.at = (MODEL_RUNNER, method.node.lineno)
            required = method.node.args.args[1 : len(method.node.args.args) - len(method.node.args.defaults)]
            required += [
                arg
                for arg, default in zip(
                    method.node.args.kwonlyargs, method.node.args.kw_defaults, strict=True
                )
                if default is None
            ]
            call(run, get_attribute(run, runner, name), [], {arg.arg: Stub(arg.arg) for arg in required})


def _check_draft_needs(run: Run, model: Instance) -> None:
    # The EAGLE worker shares embedding and head with the draft: eagle_worker.py and eagle_worker_v2.py.
    for name in ("get_embed_and_head", "set_embed_and_head"):
        run.at = (model.cls.module.path, model.cls.node.lineno)
        get_attribute(run, model, name)


def _forward(run: Run, model: Instance, mode: str, scenario: Scenario) -> Outcome:
    if run.vague is not None:
        return Outcome(unknown=run.vague, call_site=run.hook_site)
    state = _state(model)
    known = None if state is None else scenario.forwards.get((mode, state))
    if known is None:
        lasting, run.lasting = run.lasting, True
        known = _run_forward(run, model, mode)
        run.lasting = lasting
    if state is not None:
        scenario.forwards[mode, state] = known
    return replace(known, call_site=run.hook_site)


def _state(value: object) -> str | None:
    """The attributes of the model and of its parts as text: equal texts forward alike. None if too much."""
    parts: list[str] = []
    pending: list[tuple[object, int]] = [(value, 8)]
    while pending:
        item, depth = pending.pop()
        if len(parts) > _MAX_STATE or depth == 0:
            return None
        inner: list[object] = []
        if isinstance(item, Instance):
            inner = [part for pair in item.attrs.items() for part in pair]
        elif isinstance(item, list | tuple | set | frozenset):
            inner = list(item)
        elif isinstance(item, dict):
            inner = [part for pair in item.items() for part in pair]
        # The number of parts makes the text unambiguous.
        parts.append(f"{type(item).__name__}{len(inner)}:{'' if inner else show(item)}")
        pending.extend((part, depth - 1) for part in inner)
    return "|".join(parts)


def _run_forward(run: Run, model: Instance, mode: str) -> Outcome:
    before, run.mode = run.mode, mode
    quiet, run.quiet = run.quiet, True
    run.reached.clear()
    run.suspicions.clear()
    batch = Stub("forward_batch")
    site = run.hook_site
    try:
        call(run, get_attribute(run, model, "forward"), [_INPUT_IDS, _POSITIONS, batch], {})
        if not run.reached:
            return Outcome(unknown="the forward does not reach the logits processor", call_site=site)
        if run.suspicions:
            return Outcome(unknown=run.suspicions[0], call_site=site)
        return _outcome(run.reached[-1], site)
    except NothingCaptured as error:
        return Outcome(
            (), call_site=site, nothing=True, where=f"{error.kind}: {error.message}, at {run.where}"
        )
    except SourceError as error:
        return Outcome(error=f"{error.kind}: {error.message}", call_site=site, where=run.where)
    except Exception as error:
        reason = str(error) if isinstance(error, Unfollowed) else f"not followed at {run.where}: {error!r}"
        return Outcome(unknown=reason, call_site=site)
    finally:
        run.mode, run.quiet = before, quiet


def _outcome(aux: object, site: str | None) -> Outcome:
    if aux is None:
        return Outcome((), call_site=site)
    if isinstance(aux, Buffer):
        labels: list[str | None] = list(aux.cells)
    elif isinstance(aux, list | tuple):
        labels = [_kept(item) if isinstance(item, Tensor) else None for item in aux]
    elif isinstance(aux, Tensor):
        labels = [_kept(aux)]
    else:
        return Outcome(unknown=f"what reaches the draft is {show(aux)}", call_site=site)
    if any(label is None for label in labels):
        return Outcome(unknown="a state that reaches the draft could not be told", call_site=site)
    return Outcome(tuple(label for label in map(_plain, labels) if label is not None), call_site=site)


def _kept(state: Tensor) -> str:
    label = _plain(state.label) or ""
    return f"other:{label} not copied, later layers write into it" if state.shared else label


def _plain(label: str | None) -> str | None:
    return {"hidden:0": "embed", "in:0": "embed"}.get(label or "", label)


def _empty_class() -> Class:
    from .modules import Module, parse

    parsed = parse("class PretrainedConfig:\n    pass\n")
    assert not isinstance(parsed, str)
    node = parsed.tree.body[0]
    assert isinstance(node, ast.ClassDef)
    return Class("PretrainedConfig", node, Module("<config>", parsed))


_EMPTY = _empty_class()
_INPUT_IDS = Tensor("other:input_ids")
_POSITIONS = Tensor("other:positions")
