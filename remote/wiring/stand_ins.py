"""What stands in for the parts of PyTorch and SGLang that the wiring passes through.

Each stand-in says in symbolic values what the real thing does to a state: the decoder layer gives the two
summands of the next layer's input, the communicator's input norm returns their sum as the new residual, a
gather moves rows and changes no state. Read from SGLang 0.5.5 to 0.5.23; measured on running servers for
0.5.8, 0.5.9 and 0.5.23.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache

from .machine import Run, iterate
from .slices import calls_hook
from .values import (
    FEATURES,
    TOKENS,
    Buffer,
    Class,
    Function,
    Instance,
    Layer,
    Layers,
    Native,
    SourceError,
    Stub,
    Tensor,
    Unfollowed,
    View,
    show,
    words,
)

Arguments = tuple[list[object], dict[str, object]]
# Classes of the multimodal wrappers that have no part in the text model.
NOT_BUILT = re.compile(r"Vi[Tt]|Vision|Projector")
HOOK = "set_eagle3_layers_to_capture"
GRAPH_RUNNERS = frozenset(("CudaGraphRunner", "DecodeCudaGraphRunner"))
# Calls that give back their state: rows are gathered, reduced or copied, the state is the same.
_PASS_THROUGH = words(
    "tensor_model_parallel_all_gather tensor_model_parallel_all_reduce all_gather "
    "all_reduce attn_tp_all_gather moe_tensor_model_parallel_all_reduce "
    "_communicate_simple_fn"
)
_SAME_STATE = words("clone detach contiguous to float bfloat16 half type")
_TENSOR_FACTS = words("device dtype is_cuda ndim requires_grad")


def captured(run: Run, runner: object, method: object = None) -> None:
    """The CUDA graphs are captured now, with the model as it is. What the capturing `method` does to the
    wiring is done before."""
    run.captures += 1
    if isinstance(method, Function) and calls_hook(method.node):
        from .calls import call_function

        call_function(run, method, [runner], {})
    run.overrides["capture"](run, [], {})


def tensor_attribute(value: Tensor, name: str) -> object:
    """Attributes and methods of a tracked state."""
    if name in value.attrs:
        return value.attrs[name]
    if name == "shape":
        return (TOKENS, FEATURES)
    if name == "clone":
        return Native(name, lambda _run, _args, _keywords: Tensor(value.label))
    if name in _SAME_STATE:
        return Native(name, lambda _run, _args, _keywords: value)
    if name in ("new_empty", "new_zeros"):
        return Native(name, lambda _run, args, _keywords: _new_buffer(args))
    if name in ("size", "dim", "numel", *_TENSOR_FACTS):
        return Stub(f"tensor.{name}")
    if name.startswith("_sglang"):
        raise SourceError("AttributeError", f"'Tensor' object has no attribute '{name}'")
    return Native(
        name, lambda _run, args, _keywords: Tensor(f"other:{value.label}.{name}({show(args)[1:-1]})")
    )


def _new_buffer(args: list[object]) -> object:
    shape = args[0] if args and isinstance(args[0], tuple | list) else tuple(args)
    columns = shape[-1] if shape else None
    if not isinstance(columns, int) or not 0 <= columns <= 1000:
        return Stub("new tensor")
    return Buffer([None] * columns)


def buffer_attribute(value: Buffer | View, name: str) -> object:
    """Attributes of a packed buffer or of some of its columns."""
    if isinstance(value, Buffer):
        if name == "shape":
            return (TOKENS, len(value.cells))
        if name in _SAME_STATE:
            return Native(name, lambda _run, _args, _keywords: Buffer(list(value.cells)))
        return Stub(f"buffer.{name}")
    if name == "shape":
        return (TOKENS, value.stop - value.start)
    if name == "copy_":
        return Native("copy_", lambda _run, args, _keywords: _copy_into(value, args))
    return Stub(f"view.{name}")


def _copy_into(view: View, args: list[object]) -> object:
    source = args[0] if args else None
    if not isinstance(source, Tensor):
        raise Unfollowed(f"a packed buffer is filled from {show(source)}")
    if view.stop - view.start != FEATURES:
        raise SourceError("RuntimeError", "more aux hidden states than the packed buffer has room for")
    view.buffer.cells[view.start] = source.label
    return view


def pass_through(name: str, args: list[object], keywords: dict[str, object]) -> object | None:
    """The state given to a call that does not change it, None when `name` is no such call."""
    if name.rpartition(".")[2] not in _PASS_THROUGH:
        return None
    return next((value for value in (*args, *keywords.values()) if isinstance(value, Tensor)), None)


def layer_outputs(run: Run, layer: Layer, args: list[object], keywords: dict[str, object]) -> object:
    """Call of a decoder layer: its source runs when it is given something to capture into."""
    run.layer = layer.index
    cls = layer.cls
    if cls is None:
        raise Unfollowed(f"the class of layer {layer.index} cannot be told, at {run.where}")
    forward = next(
        (node for node in cls.node.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None
    )
    if forward is None:
        raise Unfollowed(f"{cls.name} has no forward")
    given = [*zip([arg.arg for arg in forward.args.args[1:]], args, strict=False), *keywords.items()]
    collectors = frozenset(name for name, value in given if isinstance(value, list | Instance))
    if collectors:
        from .calls import call_function

        instance = Instance(cls, {"layer_id": layer.index}, lenient=True)
        part = _up_to_last_use(forward, collectors)
        call_function(run, Function("forward", part, cls.module, None, cls), [instance, *args], keywords)
    names, several = _returned(cls.name, forward)
    values = [_layer_output(layer, name) for name in names]
    return tuple(values) if several else values[0]


@lru_cache(maxsize=256)
def _up_to_last_use(forward: ast.FunctionDef, collectors: frozenset[str]) -> ast.FunctionDef:
    """The forward up to the last statement that a collector, or what is made of it, occurs in."""
    names, last = set(collectors), 0
    for index, statement in enumerate(forward.body):
        parts = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        if any(node.id in names for node in parts):
            names |= {node.id for node in parts if isinstance(node.ctx, ast.Store)} - _STATES
            last = index + 1
    part = ast.FunctionDef(name=forward.name, args=forward.args, body=forward.body[:last], decorator_list=[])
    return ast.copy_location(part, forward)


# What a layer makes of the states is no collector, though it comes from a call that gets one.
_STATES = frozenset(("hidden_states", "residual"))


@lru_cache(maxsize=64)
def _returned(owner: str, forward: ast.FunctionDef) -> tuple[tuple[str, ...], bool]:
    """The names in the last `return` of a layer's forward, and whether it is a tuple."""
    returns = [node for node in ast.walk(forward) if isinstance(node, ast.Return)]
    last = max(returns, key=lambda node: node.lineno).value if returns else None
    if last is None:
        raise Unfollowed(f"{owner}.forward returns nothing")
    names = last.elts if isinstance(last, ast.Tuple) else [last]
    return tuple(node.id if isinstance(node, ast.Name) else "" for node in names), isinstance(last, ast.Tuple)


def _layer_output(layer: Layer, name: str) -> object:
    label = {"hidden_states": "hidden", "residual": "residual"}.get(name)
    return Stub(f"layer.{name}") if label is None else Tensor(f"{label}:{layer.index + 1}", shared=True)


def _layer_class(run: Run, make: object) -> Class | None:
    """The class that the function given to make_layers constructs: `lambda idx, prefix: Class(...)`."""
    body = make.node.body if isinstance(make, Function) else None
    if (
        not isinstance(make, Function)
        or not isinstance(body, ast.Call)
        or not isinstance(body.func, ast.Name)
    ):
        return None
    found = make.module.lookup(run, body.func.id)
    return found if isinstance(found, Class) else None


def layer_input(index: int) -> Tensor:
    """What layer `index` gets: the sum of the two states, for layer 0 the embedding."""
    return Tensor("embed" if index == 0 else f"in:{index}", shared=True)


def _norm(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    """RMSNorm: with a residual it returns the norm and the sum, which is the layer's whole input."""
    if len(args) < 2 or args[1] is None:
        return Tensor(f"other:norm({show(args[0]) if args else ''})")
    from .operators import binary

    total = binary(run, args[0], args[1], ast.Add)
    if isinstance(total, Tensor):
        total.shared = True
    return Tensor(f"other:norm({show(total)})"), total


def _norm_stand_in(_run: Run, _receiver: object) -> object:
    return _NORM


def _of_class(module: str, name: str) -> Callable[[Run, Instance], object]:
    def make(run: Run, receiver: Instance) -> object:
        found = run.modules.get(module)
        cls = found.lookup(run, name) if found is not None else None
        if not isinstance(cls, Class):
            raise Unfollowed(f"{name} of {module} was not given")
        key = f"<{name}>"
        return receiver.attrs.setdefault(key, Instance(cls, {}, lenient=True))

    return make


def _prepared(run: Run, _args: list[object], _keywords: dict[str, object]) -> object:
    """The stage's read of its input adds what the previous stage owes; that sum is the new residual."""
    total = layer_input(run.layer)
    return Tensor(f"other:norm({total.label})"), Stub("stream", {"residual": total, "pending": None})


def _native(
    name: str, call: Callable[[Run, list[object], dict[str, object]], object]
) -> Callable[..., object]:
    return lambda _run, _receiver: Native(name, call)


# By class and attribute of an instance that was not built by its own __init__.
INSTANCE_STAND_INS: dict[tuple[str, str], Callable[[Run, Instance], object]] = {
    ("DeepseekV2DecoderLayer", "layer_communicator"): _of_class(
        "sglang/srt/layers/communicator.py", "LayerCommunicator"
    ),
    ("DeepseekV2DecoderLayer", "attn_boundary"): _of_class(
        "sglang/srt/layers/layer_boundary/stage.py", "StageBoundary"
    ),
    ("DeepseekV2DecoderLayer", "ffn_boundary"): lambda _run, _receiver: Stub("ffn_boundary"),
    ("LayerCommunicator", "input_layernorm"): _norm_stand_in,
    ("LayerCommunicator", "prepare_mlp"): _native(
        "prepare_mlp", lambda _run, _args, _keywords: (Stub("mlp input"), Stub("mlp residual"))
    ),
    ("LayerCommunicator", "postprocess_layer"): _native(
        "postprocess_layer", lambda _run, _args, _keywords: (Stub("output"), Stub("residual"))
    ),
    # Where it is true the residual stays as it is, so that copying or not is the same.
    ("LayerCommunicator", "_post_attn_residual_is_read_only"): _native(
        "_post_attn_residual_is_read_only", lambda _run, _args, _keywords: False
    ),
    ("LayerCommunicator", "should_fuse_mlp_allreduce_with_next_layer"): _native(
        "should_fuse", lambda _run, _args, _keywords: Stub("fuse_mlp_allreduce")
    ),
    ("LayerCommunicator", "should_use_reduce_scatter"): _native(
        "should_use_reduce_scatter", lambda _run, _args, _keywords: Stub("use_reduce_scatter")
    ),
    ("StageBoundary", "_prepare_input"): _native("_prepare_input", _prepared),
    ("StageBoundary", "_prepare"): _native("_prepare", _prepared),
    ("StageBoundary", "_select"): _native("_select", lambda _run, args, _keywords: (args[0], Stub("steps"))),
    ("StageBoundary", "entry"): _native("entry", lambda _run, _args, _keywords: Stub("steps.entry")),
    ("StageBoundary", "finish"): _native("finish", lambda _run, _args, _keywords: Stub("output")),
}


def _make_layers(run: Run, args: list[object], keywords: dict[str, object]) -> object:
    count = args[0] if args else keywords.get("num_hidden_layers")
    if not isinstance(count, int) or count > 2000:
        raise Unfollowed(f"the number of layers is {show(count)}, at {run.where}")
    return Layers(range(count), _layer_class(run, args[1] if len(args) > 1 else None)), 0, count


def _logits(run: Run, args: list[object], keywords: dict[str, object]) -> object:
    """LogitsProcessor(input_ids, hidden_states, lm_head, batch, aux_hidden_states): the way to `fc`."""
    run.reached.append(keywords.get("aux_hidden_states", args[4] if len(args) > 4 else None))
    return Stub("logits")


def _cat(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    cells: list[str | None] = []
    for item in iterate(run, args[0] if args else []):
        if isinstance(item, Buffer):
            cells.extend(item.cells)
        elif isinstance(item, Tensor):
            cells.append(item.label)
        else:
            return Stub("torch.cat(...)")
    return Buffer(cells)


def _hooked(run: Run, _args: list[object], _keywords: dict[str, object]) -> object:
    raise Unfollowed(f"a forward hook is registered, at {run.where}")


def _default_dict(_run: Run, args: list[object], keywords: dict[str, object]) -> object:
    from .operators import FACTORY

    given = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
    return {**given, **keywords, FACTORY: args[0] if args else None}


_NORM = Native("RMSNorm", _norm)
_LOGITS = Native("LogitsProcessor", _logits)
_EMBEDDING = Native("VocabParallelEmbedding", lambda _run, _args, _keywords: Tensor("embed", shared=True))

# By the last name of an unknown that is called.
CALL_STAND_INS: dict[str, Callable[[Run, list[object], dict[str, object]], object]] = {
    "make_layers": _make_layers,
    "make_pp_layers": _make_layers,
    "RMSNorm": lambda _run, _args, _keywords: _NORM,
    "LogitsProcessor": lambda _run, _args, _keywords: _LOGITS,
    "VocabParallelEmbedding": lambda _run, _args, _keywords: _EMBEDDING,
    # Since 0.5.21: the end of the residual stream, in layers/layer_boundary/residual/batch.py.
    "complete_output": lambda _run, _args, _keywords: Tensor("other:output"),
    "final_norm": lambda _run, _args, _keywords: Tensor("other:output"),
    "norm": lambda _run, _args, _keywords: Tensor("other:output"),
    "register_forward_hook": _hooked,
    "register_forward_pre_hook": _hooked,
    "deepcopy": lambda _run, args, _keywords: args[0] if args else None,
    "copy": lambda _run, args, _keywords: args[0] if args else None,
    "cat": _cat,
    "concat": _cat,
    "defaultdict": _default_dict,
    "getLogger": lambda _run, _args, _keywords: Stub("logger"),
    "stream_of": lambda _run, _args, _keywords: Stub("stream", {"residual": None, "pending": None}),
}
