"""Source that somebody changed: wrong in a way that must show, or not to be told. Never a false match."""

from __future__ import annotations

import pytest

from remote import wiring
from tests.wiring.support import (
    CONTRACT,
    GRAPH_RUNNER,
    IDS,
    MODEL,
    MODEL_RUNNER,
    compute,
    edited,
    patched,
    pristine,
    told,
)
from tests.wiring.test_patched import CAPTURE

VERSION = "0.5.9"
FILTER = "[val + 1 for val in layer_ids if val != -1]"
SET_FLAG = "            self.model.capture_embedding_for_eagle3 = -1 in layer_ids\n"
INIT_FLAG = "        self.capture_embedding_for_eagle3 = False\n"
IN_LOOP = "                        aux_hidden_states.append(hidden_states + residual)\n"
RETURN = "        return hidden_states, aux_hidden_states\n"
FRONT = "aux_hidden_states = [hidden_states + residual, *aux_hidden_states]"
GRAPH_CALL = "            self.model_runner.model.set_eagle3_layers_to_capture()\n"


def _three(path: str, old: str, new: str) -> dict[str, str]:
    return edited(patched(VERSION, "eagle3-three-edits"), path, old, new)


MISMATCHES = {
    "the embedding is not copied": (CAPTURE, CAPTURE.replace("hidden_states.clone()", "hidden_states")),
    "ids are used as they are": (FILTER, "[val for val in layer_ids if val != -1]"),
    "two are added": (FILTER, "[val + 2 for val in layer_ids if val != -1]"),
    "the sum lacks the residual": (IN_LOOP, IN_LOOP.replace("hidden_states + residual", "hidden_states")),
    "only the residual": (IN_LOOP, IN_LOOP.replace("hidden_states + residual", "residual.clone()")),
    "the order is turned": (RETURN, RETURN.replace("aux_hidden_states", "aux_hidden_states[::-1]")),
    "inserted at the front": (IN_LOOP, IN_LOOP.replace("append(", "insert(0, ")),
    "added at the front": (
        IN_LOOP,
        IN_LOOP.replace("aux_hidden_states.append(hidden_states + residual)", FRONT),
    ),
    "turned in place": (RETURN, f"        aux_hidden_states.reverse()\n{RETURN}"),
    "the first put last": (RETURN, f"        aux_hidden_states.append(aux_hidden_states.pop(0))\n{RETURN}"),
    "one twice": (RETURN, f"        aux_hidden_states[0] = aux_hidden_states[1]\n{RETURN}"),
    "the layer's output instead of its input": (
        FILTER,
        "[val + 1 + 1 for val in sorted(layer_ids) if val >= 0]",
    ),
    "the normalised embedding": (
        CAPTURE,
        CAPTURE.replace("hidden_states.clone()", "self.norm(hidden_states)"),
    ),
    "a scaled embedding": (CAPTURE, CAPTURE.replace("hidden_states.clone()", "hidden_states * 2")),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_wrong_edit_is_a_mismatch(name: str) -> None:
    sources = _three(MODEL, *MISMATCHES[name])
    found = compute(sources, VERSION, IDS, server_args={"moe_a2a_backend": "none"}).eager
    assert wiring.compare(found, CONTRACT) == "mismatch", told(found)


def test_what_depends_on_an_argument_is_unknown_without_it() -> None:
    sources = _three(MODEL, *MISMATCHES["only the residual"])
    found = compute(sources, VERSION, IDS).eager
    assert found.unknown is not None
    assert "get_moe_a2a_backend().is_deepep()" in found.unknown
    exchanged = compute(sources, VERSION, IDS, server_args={"moe_a2a_backend": "deepep"}).eager
    assert wiring.compare(exchanged, CONTRACT) == "match"


SAME = {
    "extended": "aux_hidden_states.extend([hidden_states + residual])",
    "added in place": "aux_hidden_states += [hidden_states + residual]",
    "inserted at the end": "aux_hidden_states.insert(len(aux_hidden_states), hidden_states + residual)",
    "put into a slice": "aux_hidden_states[len(aux_hidden_states) :] = [hidden_states + residual]",
    "put into a new list": "aux_hidden_states = aux_hidden_states + [hidden_states + residual]",
}


@pytest.mark.parametrize("name", SAME)
def test_another_way_to_capture_is_a_match(name: str) -> None:
    sources = _three(MODEL, IN_LOOP, IN_LOOP.replace(IN_LOOP.strip(), SAME[name]))
    found = compute(sources, VERSION, IDS, server_args={"moe_a2a_backend": "none"}).eager
    assert wiring.compare(found, CONTRACT) == "match", told(found)


CRASHES = {
    "-1 is not filtered": (FILTER, "[val + 1 for val in layer_ids]", "TypeError"),
    "the flag is set on the outer model": (
        SET_FLAG,
        SET_FLAG.replace("self.model.", "self."),
        "RuntimeError: mat1 and mat2",
    ),
    "captured twice": (CAPTURE, CAPTURE * 2, "RuntimeError: mat1 and mat2"),
    "captured in every layer": (
        IN_LOOP,
        f"{IN_LOOP}                aux_hidden_states.append(hidden_states.clone())\n",
        "RuntimeError: mat1 and mat2",
    ),
    "one taken out": (RETURN, f"        del aux_hidden_states[0]\n{RETURN}", "RuntimeError: mat1 and mat2"),
    "the list is not made": ("        aux_hidden_states = []\n", "", "NameError"),
    "the hook has another name": (
        "def set_eagle3_layers_to_capture(",
        "def set_eagle_layers_to_capture(",
        "AttributeError",
    ),
    "the hook takes no ids": (
        "def set_eagle3_layers_to_capture(self, layer_ids: Optional[List[int]] = None):",
        "def set_eagle3_layers_to_capture(self, layer_ids=None, /, *, extra):",
        "TypeError",
    ),
    "an attribute with a slip": (
        CAPTURE,
        CAPTURE.replace("self.capture_embedding_for_eagle3", "self.capture_embeddings_for_eagle3"),
        "AttributeError: 'DeepseekV2Model' object has no attribute 'capture_embeddings_for_eagle3'",
    ),
}


@pytest.mark.parametrize("name", CRASHES)
def test_a_broken_edit_is_a_crash(name: str) -> None:
    old, new, error = CRASHES[name]
    found = compute(_three(MODEL, old, new), VERSION, IDS).eager
    assert found.error is not None, told(found)
    assert found.error.startswith(error)


UNKNOWNS = {
    "by the environment": (
        CAPTURE,
        CAPTURE.replace("if self.capture_embedding_for_eagle3:", "if os.environ.get('FIX'):"),
    ),
    "by the environment, within": (
        FILTER,
        "[val + 1 for val in layer_ids if val != -1] if os.environ.get('FIX') else list(layer_ids)",
    ),
    "handed to something unknown": (RETURN, f"        add_prefix(aux_hidden_states)\n{RETURN}"),
    "replaced by something unknown": (
        RETURN,
        f"        aux_hidden_states = add_prefix(aux_hidden_states)\n{RETURN}",
    ),
    "changed after the class": (
        "class DeepseekV3ForCausalLM(",
        "DeepseekV2Model.forward = other_forward\n\n\nclass DeepseekV3ForCausalLM(",
    ),
    "changed by a call": (
        "class DeepseekV3ForCausalLM(",
        "install(DeepseekV2Model)\n\n\nclass DeepseekV3ForCausalLM(",
    ),
    "a decorated hook": (
        "    def set_eagle3_layers_to_capture(",
        "    @remember\n    def set_eagle3_layers_to_capture(",
    ),
    "a decorated class": ("class DeepseekV2Model(", "@remember\nclass DeepseekV2Model("),
    "a forward hook": (
        SET_FLAG,
        f"{SET_FLAG}            self.model.embed_tokens.register_forward_hook(print)\n",
    ),
    "ids from a file": (SET_FLAG, f"{SET_FLAG}            layer_ids = torch.load('ids.pt')\n"),
    "a method defined twice by a condition": (
        INIT_FLAG,
        f"{INIT_FLAG}\n    if torch.cuda.is_available():\n        def forward(self, *args): ...\n",
    ),
    "it does not parse": (INIT_FLAG, INIT_FLAG.replace("=", "==(")),
}


@pytest.mark.parametrize("name", UNKNOWNS)
def test_what_cannot_be_told_is_unknown(name: str) -> None:
    found = compute(_three(MODEL, *UNKNOWNS[name]), VERSION, IDS).eager
    assert wiring.compare(found, CONTRACT) == "unknown", told(found)
    assert found.unknown


def test_the_order_of_the_ids_does_not_matter() -> None:
    found = compute(patched(VERSION, "eagle3-three-edits"), VERSION, [30, 2, -1])
    assert wiring.compare(found.eager, CONTRACT) == "match"


GRAPH_EDITS = {
    "other ids": (GRAPH_CALL.replace("()", "([2, 30, 58])"), "in:3, in:31, in:59"),
    "the runner's ids": (
        GRAPH_CALL.replace("()", "(self.model_runner.eagle_aux_hidden_state_layer_ids)"),
        "embed, in:3, in:31",
    ),
    "the runner's ids if it has any": (
        GRAPH_CALL.replace("()", "(getattr(model_runner, 'eagle_aux_hidden_state_layer_ids', None))"),
        "embed, in:3, in:31",
    ),
    "through a local name": (
        "            ids = model_runner.eagle_aux_hidden_state_layer_ids\n"
        + GRAPH_CALL.replace("()", "(ids)"),
        "embed, in:3, in:31",
    ),
    "no call": ("            pass\n", ""),
    "a slip in the name": (
        GRAPH_CALL.replace("()", "(self.model_runner.eagle_aux_hidden_state_layers)"),
        "crash: AttributeError: 'ModelRunner' object has no attribute 'eagle_aux_hidden_state_layers'",
    ),
    "ids from elsewhere": (GRAPH_CALL.replace("()", "(read_ids())"), "unknown"),
    "only for some servers": (
        f"            if model_runner.server_args.use_ids:\n    {GRAPH_CALL.replace('()', '([-1, 2, 30])')}",
        "unknown",
    ),
    "the model's own attribute": (
        "            self.model_runner.model.capture_aux_hidden_states = True\n"
        "            self.model_runner.model.model.layers_to_capture = [3, 31]\n"
        "            self.model_runner.model.model.capture_embedding_for_eagle3 = True\n",
        "embed, in:3, in:31",
    ),
}


@pytest.mark.parametrize("name", GRAPH_EDITS)
def test_edits_of_the_call_before_capture(name: str) -> None:
    new, expected = GRAPH_EDITS[name]
    found = compute(_three(GRAPH_RUNNER, GRAPH_CALL, new), VERSION, IDS)
    assert told(found.graph).startswith(expected)
    if not told(found.graph).startswith("crash"):
        assert told(found.eager).startswith("embed, in:3, in:31")


def test_a_call_within_the_capture() -> None:
    sources = _three(GRAPH_RUNNER, GRAPH_CALL, "            pass\n")
    head = "    def capture(self) -> None:\n"
    call = "        self.model_runner.model.set_eagle3_layers_to_capture([2, 30, 58])\n"
    found = compute(edited(sources, GRAPH_RUNNER, head, head + call), VERSION, IDS)
    assert told(found.graph) == "in:3, in:31, in:59"


def test_ids_set_before_the_graphs() -> None:
    sources = pristine(VERSION)
    call = """        if self.eagle_use_aux_hidden_state:
            self.model.set_eagle3_layers_to_capture(
                self.eagle_aux_hidden_state_layer_ids
            )
"""
    sources = edited(sources, MODEL_RUNNER, call, "")
    head = "        # Init max running requests\n"
    sources = edited(sources, MODEL_RUNNER, head, call + head)
    sources = edited(sources, GRAPH_RUNNER, GRAPH_CALL, "            pass\n")
    found = compute(sources, VERSION, [2, 30, 58])
    # The dummy run of the autotuner, which some kernels need, sets the defaults in between.
    assert told(found.graph).startswith("unknown: it depends on `_should_run_flashinfer_autotune()`")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (
            "sglang/srt/layers/layer_boundary/stage.py",
            "            residual_value = stream.residual\n",
            "            residual_value = hidden_states\n",
        ),
        (
            "sglang/srt/layers/aux_hidden_states.py",
            "        start = self._idx * self._feature_size\n",
            "        start = (self._num_captures - 1 - self._idx) * self._feature_size\n",
        ),
        (
            MODEL,
            "            if layer_ids and layer_ids[0] == 1:\n",
            "            if layer_ids:\n",
        ),
    ],
)
def test_edits_of_the_newest_version(path: str, old: str, new: str) -> None:
    native = ["embed", "in:3", "in:31"]
    assert list(compute(pristine("0.5.23"), "0.5.23", [0, 3, 31]).eager.layers or ()) == native
    found = compute(edited(pristine("0.5.23"), path, old, new), "0.5.23", [0, 3, 31])
    assert wiring.compare(found.eager, native) == "mismatch", told(found.eager)
