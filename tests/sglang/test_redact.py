"""Secrets, in every form that SGLang or a shell prints them."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.sglang.lines import numbered
from remote.sglang.redact import MASK, redact_text
from remote.sglang.wrapped import Stream, feed, finish, redact_lines
from tests.sglang import data

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
        (record,) = data.records(text)
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
        f"python -m sglang.launch_server --api-k {secret}",
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


_PUNCTUATED = st.from_regex(r"[1-9][1-9,;)\]}&(\[{]{6,30}[1-9]", fullmatch=True)


@given(_PUNCTUATED)
def test_a_secret_with_punctuation_is_masked_to_its_end(secret: str) -> None:
    for text in (
        f"python -m sglang.launch_server --model-path /m --api-key {secret} --port 8000",
        f"server_args={{'launch_command': 'x --api-key {secret}', 'port': 8000}}",
        f"Authorization: Bearer {secret}",
        f"a bearer {secret} --port 8000",
        f"OPENAI_API_KEY={secret}",
    ):
        shown = redact_text(text)
        assert secret[-4:] not in shown, text
        assert shown.endswith(text.rpartition(secret)[2])


def test_what_stands_behind_a_secret_stays() -> None:
    for text, shown in (
        ("?api_key=x&user=y", "?api_key=***&user=y"),
        ("(api_key=x1, port=1)", "(api_key=***, port=1)"),
        ("{'cmd': '--api-key x1', 'port': 1}", "{'cmd': '--api-key ***', 'port': 1}"),
        ('["--api-key", "x1"], 1', '["--api-key", "***"], 1'),
        ("""--api-key 'it'"'"'s' --port 1""", "--api-key '***'' --port 1"),
        ("api_key=None,port=1", "api_key=None,port=1"),
        ("error: --api-key\n[2026-11-29 10:00:00] next", "error: --api-key\n[2026-11-29 10:00:00] next"),
        ("--api-key\nhunter2 --port 1", "--api-key\n*** --port 1"),
    ):
        assert redact_text(text) == shown


_KEY = "sup3rl0ngfirmsecretvalueQwxzjkvyTu"
_RECORD = f"[10:00:00] server_args=ServerArgs(model_path='/m', api_key='{_KEY}', port=30000)"
_WITHIN = [_RECORD.index(_KEY) - 4, _RECORD.index(_KEY), *(_RECORD.index(_KEY) + n for n in (4, 10, 30))]


def _pieces_of_the_key(text: str) -> list[str]:
    return [_KEY[at : at + 4] for at in range(len(_KEY) - 3) if _KEY[at : at + 4] in text]


@pytest.mark.parametrize("at", _WITHIN)
@pytest.mark.parametrize("by", ["", *data.RELAYS])
def test_no_line_of_a_wrapped_record_shows_a_part_of_its_secret(at: int, by: str) -> None:
    text = f"noise\n{_RECORD[:at]}\n{_RECORD[at:]}\n[10:00:01] key {_KEY}!\n"
    text = data.handed_on(text, by) if by else text
    lines = list(numbered(text))
    for shown in (lines, lines[1:2], lines[2:3], lines[3:]):
        found = redact_lines(shown, lines[1:3])
        assert [number for number, _ in found] == [number for number, _ in shown]
        assert _pieces_of_the_key(" ".join(text for _, text in found)) == []
    assert "port=30000)" in dict(redact_lines(lines, lines))[3]


def test_a_command_that_was_wrapped_within_the_secret_of_a_record() -> None:
    lines = list(numbered(f"+ python --api-key {_KEY[:9]}\n{_KEY[9:]} --port 1\n{_RECORD}\n"))
    for shown in (lines, lines[:1], lines[1:2]):
        assert _pieces_of_the_key(str(redact_lines(shown, lines[2:]))) == []


def test_the_secret_of_a_record_that_was_cut_within_it() -> None:
    at = _RECORD.index("_key")
    lines = list(numbered(f"{_RECORD[:at]}\n{_RECORD[at : at + 20]}\n[10:00:01] next\n"))
    assert _pieces_of_the_key(str(redact_lines(lines[1:2], lines))) == []


@given(st.lists(st.integers(0, 400), max_size=8), st.sampled_from(_WITHIN))
def test_a_log_that_is_followed_piece_by_piece(cuts: list[int], at: int) -> None:
    text = f"noise\r50%\n{_RECORD[:at]}\n{_RECORD[at:]}\nkey {_KEY}\nREADY\nno end {_KEY}"
    places = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    state, shown = Stream(), ""
    for begin, end in itertools.pairwise(places):
        state, more = feed(state, text[begin:end])
        shown += more
    shown += finish(state)
    assert _pieces_of_the_key(shown) == []
    assert shown.count("\n") == text.count("\n")
    assert "READY" in shown


def test_a_log_that_is_followed_shows_what_is_safe_at_once() -> None:
    state, shown = feed(Stream(), "one\ntw")
    assert shown == "one\n"
    state, shown = feed(state, f"o\n{_RECORD[:50]}\n")
    assert shown == "two\n"
    state, shown = feed(state, f"{_RECORD[50:]}\n")
    assert shown.count("\n") == 2
    # A record that was cut holds nothing up.
    state, shown = feed(state, f"{_RECORD[:50]}\n[10:00:02] next\n")
    assert shown.endswith("next\n")


def test_masked_values_count_as_set() -> None:
    (first,) = data.records("server_args={'api_key': '[REDACTED]', 'admin_api_key': '****', 'port': 1}")
    assert (first.values["api_key"], first.values["admin_api_key"]) == (MASK, MASK)


def test_cut_and_nested_values() -> None:
    assert "SECRETVALUE" not in redact_text("server_args=ServerArgs(port=1, api_key='SECRETVALUE")
    text = (
        "server_args=ServerArgs(extra={'api_key': 'SECRETVALUE'}, launch_command='x --api-key SECRETVALUE')"
    )
    (record,) = data.records(text)
    assert "SECRETVALUE" not in str(record)
    assert "SECRETVALUE" not in redact_text(text)


def test_a_long_line_is_no_trap() -> None:
    text = "api_key='" + "\\" * 2_000_000 + " authorization: " * 100_000
    assert MASK in redact_text(text)
