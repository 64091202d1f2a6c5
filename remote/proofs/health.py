"""Does the server answer, and does it really generate?"""

from __future__ import annotations

import os
from typing import Any

from ..checks import Check, Evidence, failed, passed, unknown
from ..picture import Picture, generated, outcome
from ..secrets import unauthorized


def _asked(picture: Picture, name: str) -> Any:
    return picture.section("http").get(name, {"error": "not asked", "status": None})


def http(picture: Picture) -> Check:
    """GET /health answers 200. In 0.5.9 it generates one token (entrypoints/http_server.py)."""
    id, expected = "health.http", "GET /health answers 200"
    reply = _asked(picture, "health")
    where = f"GET :{picture.node.server.port}/health"
    if reply.get("status") == 200:
        return passed(id, expected, f"200 after {reply['elapsed_s']:.1f} s", Evidence(where, "200"))
    observed = outcome(reply)
    return failed(
        id, expected, observed, Evidence(where, observed), remedy=f"inv status --node {picture.node.name}"
    )


def generate(picture: Picture) -> Check:
    """POST /generate returns tokens: 200 from /health has been seen with a dead scheduler."""
    id, expected = "health.generate", "POST /generate returns tokens"
    where = f"POST :{picture.node.server.port}/generate"
    reply = _asked(picture, "generate")
    refused = unauthorized(picture.node, reply, os.environ)
    if refused is not None:
        return unknown(id, expected, refused.why, Evidence(where, "401"), remedy=refused.remedy)
    if reply.get("status") != 200:
        observed = outcome(reply)
        return failed(
            id,
            expected,
            observed,
            Evidence(where, observed),
            remedy=f"inv restart --node {picture.node.name}",
        )
    tokens = generated(reply)
    if tokens is None:
        return unknown(
            id,
            expected,
            "the reply is not one of /generate",
            Evidence(where, str(reply.get("body"))[:200]),
            remedy=f"inv status --node {picture.node.name}",
        )
    if tokens <= 0:
        return failed(
            id,
            expected,
            "no token came back",
            Evidence(where, str(reply["body"])[:200]),
            remedy=f"inv restart --node {picture.node.name}",
        )
    return passed(
        id, expected, f"{tokens} tokens in {reply['elapsed_s']:.1f} s", Evidence(where, f"{tokens} tokens")
    )
