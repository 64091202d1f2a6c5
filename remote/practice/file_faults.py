"""Faults in the node's files: SGLang's source, its bytecode, the draft, what lets one in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remote.practice.build import DEEPSEEK, FIXED, GRAPH_RUNNER, MODEL_RUNNER
from remote.practice.fault import CONNECT, NOT_FOLLOWED, STARTED_BEFORE, Fault, follows
from remote.practice.file_steps import (
    append,
    draft,
    draft_linked,
    draft_text,
    edit,
    empty,
    no_host_key,
    other_host_key,
    remove,
    shadow,
    stale_bytecode,
    undo,
)


def _layers(value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["eagle_config"].update(eagle_aux_hidden_state_layer_ids=value)


SOURCE = (
    Fault(
        "edit-undone",
        "One edit of the fix is gone",
        "takes the capture of the embedding out of deepseek_v2.py again, and leaves the other edits",
        ("source.state", "source.behaviour", "wiring.eager", "wiring.graph"),
        (undo(DEEPSEEK, holding="aux_hidden_states.append("),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "graph-edit-undone",
        "The fix reaches prefill but not decode",
        "puts the wheel's cuda_graph_runner.py and model_runner.py back, as in the incident",
        ("source.state", "wiring.graph"),
        (undo(GRAPH_RUNNER, MODEL_RUNNER),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "fix-undone",
        "All files are as in the wheel",
        "puts the wheel's files back, as an upgrade or a reinstall does",
        ("source.state", "source.behaviour", "wiring.eager", "wiring.graph"),
        (undo(*FIXED),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "capture-order",
        "The draft gets the right layers in the wrong order",
        "has deepseek_v2.py put each captured layer before the earlier ones",
        ("source.behaviour", "wiring.eager", "wiring.graph"),
        (
            edit(
                DEEPSEEK,
                "aux_hidden_states.append(hidden_states + residual)",
                "aux_hidden_states.insert(0, hidden_states + residual)",
            ),
        ),
        also=STARTED_BEFORE,
    ),
    Fault(
        "attribute-slip",
        "An edit of the fix sets an attribute of the wrong object",
        "has deepseek_v2.py set capture_embedding_for_eagle3 on the outer model, where nobody reads it",
        ("source.state", "source.behaviour", "wiring.eager", "wiring.graph"),
        (
            edit(
                DEEPSEEK,
                "self.model.capture_embedding_for_eagle3 = -1 in layer_ids",
                "self.capture_embedding_for_eagle3 = -1 in layer_ids",
            ),
        ),
        also=STARTED_BEFORE,
    ),
    Fault(
        "layer-convention",
        "Layer ids are taken for layers, as from 0.5.13 on",
        "has deepseek_v2.py capture the layers that the ids name, not those after them",
        ("source.state", "source.behaviour", "wiring.eager", "wiring.graph"),
        (
            edit(
                DEEPSEEK,
                "[val + 1 for val in layer_ids if val != -1]",
                "[val for val in layer_ids if val != -1]",
            ),
        ),
        also=STARTED_BEFORE,
    ),
    Fault(
        "model-file-empty",
        "The model file is empty",
        "leaves nothing in deepseek_v2.py, as a full disk does",
        ("source.state",),
        (empty(DEEPSEEK),),
        also=(*STARTED_BEFORE, *NOT_FOLLOWED),
    ),
    Fault(
        "model-file-gone",
        "The model file is gone",
        "takes deepseek_v2.py away",
        ("source.state",),
        (remove(lambda at: at.site_packages / DEEPSEEK),),
        also=(
            *follows("unknown", "when it went cannot be told", "process.after_fix"),
            *follows("unknown", "there is nothing to compile", "source.compiles"),
            *NOT_FOLLOWED,
        ),
    ),
    Fault(
        "second-install",
        "The patched SGLang is not the one that runs",
        "puts a second, unpatched SGLang first on the interpreter's path",
        ("source.file", "source.state", "source.behaviour", "wiring.eager", "wiring.graph"),
        (shadow,),
        also=STARTED_BEFORE,
    ),
    Fault(
        "syntax-error",
        "The model file does not compile",
        "leaves an open bracket at the end of deepseek_v2.py, as a sed that went wrong",
        ("source.compiles", "source.state"),
        (append(DEEPSEEK, "\n_left_open = (\n"),),
        also=(*STARTED_BEFORE, *NOT_FOLLOWED),
    ),
    Fault(
        "foreign-edit",
        "Somebody else rewrote a statement that the fix builds on",
        "writes `aux_hidden_states = list()` in deepseek_v2.py: neither done nor to do",
        ("source.state",),
        (edit(DEEPSEEK, "        aux_hidden_states = []\n", "        aux_hidden_states = list()\n"),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "stale-pyc",
        "Old bytecode with the new file's second and size",
        "puts bytecode of other source beside deepseek_v2.py that Python believes",
        ("bytecode.fresh",),
        (stale_bytecode(DEEPSEEK, unchecked=False),),
    ),
    Fault(
        "unchecked-pyc",
        "Bytecode that never looks at the source",
        "puts an unchecked-hash pyc of other source beside deepseek_v2.py",
        ("bytecode.fresh",),
        (stale_bytecode(DEEPSEEK, unchecked=True),),
    ),
)

DRAFT = (
    Fault(
        "config-reverted",
        "The draft's layer ids are the old ones",
        "sets eagle_aux_hidden_state_layer_ids to [2, 30, 58]",
        ("config.values", "wiring.eager", "wiring.graph"),
        (draft(_layers([2, 30, 58])),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "config-string",
        "The draft's layer ids are text, not a list",
        'sets eagle_aux_hidden_state_layer_ids to "[-1, 2, 30]" in quotes',
        ("config.values", "wiring.eager", "wiring.graph"),
        (draft(_layers("[-1, 2, 30]")),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "config-order",
        "The draft's layer ids are in another order",
        "sets eagle_aux_hidden_state_layer_ids to [2, 30, -1]",
        ("config.values",),
        (draft(_layers([2, 30, -1])),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "config-one-too-many",
        "The draft is given more layers than it takes",
        "sets eagle_aux_hidden_state_layer_ids to [-1, 2, 30, 58]",
        ("config.values", "config.draft", "wiring.eager", "wiring.graph"),
        (draft(_layers([-1, 2, 30, 58])),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "config-key-gone",
        "The draft names no layers",
        "takes eagle_config out of the draft's config.json",
        ("config.values", "wiring.eager", "wiring.graph"),
        (draft(lambda config: config.pop("eagle_config")),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "config-broken",
        "The draft's config.json is no JSON",
        "takes a brace away, as an edit by hand that went wrong",
        ("config.values",),
        (draft_text("{", ""),),
        also=(
            *STARTED_BEFORE,
            *follows(
                "unknown",
                "the draft's config.json says nothing",
                "config.draft",
                "source.behaviour",
                "wiring.eager",
                "wiring.graph",
            ),
        ),
    ),
    Fault(
        "config-twice",
        "The draft's config.json says it twice",
        "adds a second eagle_config at the end, with the old layer ids: the last one counts",
        ("config.values", "wiring.eager", "wiring.graph"),
        (
            draft_text(
                '"vocab_size": 163840\n',
                '"vocab_size": 163840,\n'
                '  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], '
                '"use_aux_hidden_state": true}\n',
            ),
        ),
        also=(
            *STARTED_BEFORE,
            *follows("unknown", "the ids have no one place to be put for a trial", "source.behaviour"),
        ),
    ),
    Fault(
        "config-linked",
        "The draft's config.json is another file",
        "makes it a link into a cache of snapshots that holds the old layer ids",
        ("config.values", "wiring.eager", "wiring.graph"),
        (draft_linked,),
        also=STARTED_BEFORE,
    ),
    Fault(
        "draft-architecture",
        "The draft is no EAGLE-3 draft",
        "sets the draft's architecture to LlamaForCausalLM",
        ("config.draft",),
        (draft(lambda config: config.update(architectures=["LlamaForCausalLM"])),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "draft-layers",
        "The draft's configuration was copied from the target",
        "sets the draft's num_hidden_layers to 61, where EAGLE-3 takes one",
        ("config.draft",),
        (draft(lambda config: config.update(num_hidden_layers=61)),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "draft-vocabulary",
        "The draft's vocabulary is not that of its weights",
        "sets draft_vocab_size to 128256 where the weights have 32000",
        ("config.draft",),
        (draft(lambda config: config.update(draft_vocab_size=128256)),),
        also=STARTED_BEFORE,
    ),
    Fault(
        "draft-weights-gone",
        "The draft has no weights",
        "takes the draft's model.safetensors away",
        ("config.draft",),
        (remove(lambda at: at.draft / "model.safetensors"),),
        also=follows("unknown", "when they went cannot be told", "process.after_fix"),
    ),
)

ACCESS = (
    Fault(
        "host-key-changed",
        "The node shows another host key than the one known",
        "writes another key into known_hosts, as after a reinstall of the node, or an attack",
        (CONNECT,),
        (other_host_key,),
    ),
    Fault(
        "host-key-unknown",
        "The node's host key is not known",
        "takes the node's key out of known_hosts",
        (CONNECT,),
        (no_host_key,),
    ),
    Fault(
        "python-gone",
        "The interpreter that the inventory names is not there",
        "takes the node's bin/python away",
        (CONNECT,),
        (remove(lambda at: at.python),),
    ),
)
