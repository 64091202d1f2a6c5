"""The draft's token tree: built before the target verifies it, walked afterwards.

Node 0 of a request's tree is the last verified token, node i the i-th selected draft token. Shapes: indices
and links [requests, nodes] int64 (sgl-kernel csrc/speculative/eagle_utils.cu; called from SGLang's
speculative/eagle_utils.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tensor = Any

FULL_MASK = 0  # TreeMaskMode: the mask's rows also cover the verified prefix


def parents(selected: Sequence[int], parent_of_group: Sequence[int], topk: int) -> list[int | None]:
    """The parent node of each node. Candidates come in groups of `topk` that share a parent: group 0 hangs on
    node 0, group g on the candidate parent_of_group[g]. None for node 0, and where the parent was dropped.
    """
    found: list[int | None] = [None]
    for candidate in selected:
        group = candidate // topk
        if group == 0:
            found.append(0)
            continue
        parent = parent_of_group[group]
        found.append(selected.index(parent) + 1 if parent in selected else None)
    return found


def build(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    topk: int,
    _depth: int,
    nodes: int,
    tree_mask_mode: int = FULL_MASK,
) -> None:
    """Fill mask, positions and links in place. The links hold -1, and the mask's rows true, at call."""
    offset = 0
    index, next_token, next_sibling = (each.view(-1, nodes) for each in (index, next_token, next_sibling))
    for request, length in enumerate(verified_seq_len.tolist()):
        parent = parents(selected_index[request].tolist(), parent_list[request].tolist(), topk)
        prefix = length if int(tree_mask_mode) == FULL_MASK else 0
        rows = tree_mask[offset : offset + nodes * (prefix + nodes)].view(nodes, prefix + nodes)
        offset += nodes * (prefix + nodes)
        rows[:, prefix:] = False
        for node in range(nodes):
            line = _line(parent, node)
            rows[node, [prefix + each for each in line]] = True
            rows[node, prefix] = True
            positions[request * nodes + node] = length + len(line) - 1
            index[request, node] = request * nodes + node
        for node in range(nodes - 1, 0, -1):
            above = parent[node]
            if above is None:
                continue
            next_sibling[request, node] = next_token[request, above]
            next_token[request, above] = node


def _line(parent: Sequence[int | None], node: int) -> list[int]:
    """The node and its ancestors."""
    found: list[int] = []
    current: int | None = node
    while current is not None:
        found.append(current)
        current = parent[current]
    return found


def verify_greedy(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow the target's choices through the tree, as far as the draft had them.

    In place: predicts [requests x nodes] the target's tokens, accept_index [requests, steps + 1] the nodes
    passed, accept_token_num [requests] how many draft tokens were right.
    """
    wanted = target_predict.reshape(-1).tolist()
    for request in range(candidates.shape[0]):
        index, child, sibling, token = (
            each[request].tolist()
            for each in (retrive_index, retrive_next_token, retrive_next_sibling, candidates)
        )
        node, accepted = 0, 0
        accept_index[request, 0] = index[0]
        while accepted + 1 < accept_index.shape[1]:
            choice = wanted[index[node]]
            following = child[node]
            while following != -1 and token[following] != choice:
                following = sibling[following]
            if following == -1:
                break
            predicts[index[node]] = choice
            node, accepted = following, accepted + 1
            accept_index[request, accepted] = index[node]
        accept_token_num[request] = accepted
        predicts[index[node]] = wanted[index[node]]
