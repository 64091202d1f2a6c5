"""Secrets, in every form that SGLang or a shell prints them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.sglang.args import find_records
from remote.sglang.redact import MASK, redact_text

_SECRET = st.from_regex(r"[A-Za-z0-9_./+@#%^!-]{8,40}", fullmatch=True).filter(
    lambda secret: secret not in "abcdefgh" and not secret.startswith(("-", "*"))
)
_NAME = st.sampled_from(["api_key", "admin_api_key", "ssl_keyfile_password"])


@given(_NAME, st.text(st.characters(codec="ascii", exclude_characters="\x00\r\n"), min_size=8, max_size=40))
def test_in_a_record_of_either_form(name: str, secret: str) -> None:
    if not re.search(r"[A-Za-z0-9]{4}", secret):
        return
    for text in (
        f"server_args=ServerArgs(model_path='/m', {name}={secret!r}, port=8000)",
        f"server_args={{'model_path': '/m', {name!r}: {secret!r}, 'port': 8000}}",
    ):
        shown = redact_text(text)
        assert secret not in shown
        assert repr(secret)[1:-1] not in shown
        assert "port" in shown
        (record,) = find_records(text)
        assert record.values[name] == MASK
        assert record.values["port"] == 8000


@given(_NAME, _SECRET, st.integers(1, 60))
def test_in_a_record_that_is_wrapped_within_the_secret_or_its_key(name: str, secret: str, cut: int) -> None:
    text = f"server_args=ServerArgs({name}='{secret}', port=8000)"
    place = 23 + cut % (len(text) - 24)
    wrapped = f"[10:00:00] {text[:place]}\n{text[place:]}\n[10:00:01] next\n"
    shown = redact_text(wrapped)
    assert shown.count("\n") == wrapped.count("\n")
    assert secret not in shown.replace("\n", "")
    half = max(text[:place].rsplit("'", maxsplit=1)[-1], text[place:].split("'", maxsplit=1)[0], key=len)
    assert len(half) < 6 or half not in secret or half not in shown


@given(_SECRET)
def test_on_command_lines_in_headers_and_environments(secret: str) -> None:
    for text in (
        f"python -m sglang.launch_server --model-path /m --api-key {secret} --port 8000",
        f"python -m sglang.launch_server --api-key={secret}",
        f"['python', '--admin-api-key', '{secret}', '--port', '8000']",
        json.dumps({"argv": ["--api-key", secret]}),
        json.dumps({"api_key": secret, "port": 1}),
        f"Authorization: Bearer {secret}",
        json.dumps({"headers": {"Authorization": f"Bearer {secret}"}}),
        f"x-api-key: {secret}",
        f"export OPENAI_API_KEY={secret}",
        f"HF_TOKEN='{secret}' python -m sglang.launch_server",
        f"{{'HF_TOKEN': '{secret}', 'PATH': '/bin'}}",
        f"DB_PASSWORD={secret} x",
        f"--ssl-keyfile-password {secret}",
    ):
        shown = redact_text(text)
        assert secret not in shown, text
        assert MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-29 16:29:12] Prefill batch, #new-token: 5, #cached-token: 0, token usage: 0.00",
        "server_args=ServerArgs(api_key=None, admin_api_key='', speculative_token_map=None)",
        "server_args={'speculative_num_draft_tokens': 6, 'max_total_tokens': None, 'tokenizer_path': '/m'}",
        "--tokenizer-path /m --max-total-tokens 4096 --speculative-token-map /m/map.pt",
        "KeyError: 'model.layers.0.mlp.weight'",
        "max_total_num_tokens=4096, chunked_prefill_size=2048",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_masked_values_count_as_set() -> None:
    (first,) = find_records("server_args={'api_key': '[REDACTED]', 'admin_api_key': '****', 'port': 1}")
    assert (first.values["api_key"], first.values["admin_api_key"]) == (MASK, MASK)


def test_cut_and_nested_values() -> None:
    assert "SECRETVALUE" not in redact_text("server_args=ServerArgs(port=1, api_key='SECRETVALUE")
    text = (
        "server_args=ServerArgs(extra={'api_key': 'SECRETVALUE'}, launch_command='x --api-key SECRETVALUE')"
    )
    (record,) = find_records(text)
    assert "SECRETVALUE" not in str(record)
    assert "SECRETVALUE" not in redact_text(text)


def test_a_long_line_is_no_trap() -> None:
    text = "api_key='" + "\\" * 2_000_000 + " authorization: " * 100_000
    assert MASK in redact_text(text)
