"""Which forward modes a server runs."""

from __future__ import annotations

import pytest

from remote import wiring


@pytest.mark.parametrize(
    ("mode", "arguments", "expected"),
    [
        ("eager", {}, True),
        ("graph", {"disable_cuda_graph": False, "device": "cuda"}, True),
        ("graph", {"disable_cuda_graph": True, "device": "cuda"}, False),
        ("graph", {"disable_cuda_graph": False}, True),
        ("graph", {}, None),
        ("graph", {"disable_cuda_graph": False, "device": "cpu", "enable_torch_compile": False}, False),
        ("graph", {"disable_cuda_graph": False, "device": "cpu", "enable_torch_compile": True}, True),
        ("graph", {"device": "cpu"}, None),
        ("graph", {"disable_cuda_graph": False, "cuda_graph_backend_decode": "disabled"}, False),
        (
            "graph",
            {"disable_cuda_graph": False, "cuda_graph_config": {"decode": {"backend": "disabled"}}},
            False,
        ),
        ("graph", {"disable_cuda_graph": False, "cuda_graph_config": {"decode": {"backend": "full"}}}, True),
        ("overlap", {"enable_two_batch_overlap": True}, True),
        ("overlap", {"enable_two_batch_overlap": False}, False),
        ("overlap", {}, None),
        ("overlap", {"enable_two_batch_overlap": "<object>"}, None),
    ],
)
def test_applies(mode: str, arguments: dict[str, object], expected: bool | None) -> None:
    assert wiring.applies(mode, arguments) is expected


def test_an_unknown_mode_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no forward mode 'prefill'"):
        wiring.applies("prefill", {})
