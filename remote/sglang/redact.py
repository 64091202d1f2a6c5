"""Secrets taken out of text: SGLang's records, command lines, HTTP headers, environments.

SGLang prints `api_key`, `admin_api_key` and `ssl_keyfile_password` in the clear, in its log and in
`/server_info` (sglang issue 37457). That a key is set stays visible: `None` and `''` are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import records
from .lines import numbered

MASK = "***"
# Less of a secret tells next to nothing, and is in many other words.
MIN_PIECE = 4

_NAME = (
    r"(?:[\w-]*(?:api[_-]?key|password|passwd|passphrase|secret|secret[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:access|auth|hf|bearer|api|github|session|refresh|id)[_-]?token))"
)
_ENVIRONMENT = r"(?:[A-Z][A-Z0-9_]*_)?(?:(?:API)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
# A value: quoted (possibly wrapped, cut, or escaped within JSON) or bare. Of a bare one the punctuation is a
# part where it goes on behind it, unless with the next `name=`.
_QUOTED = r"""'(?:[^'\\]|\\.){0,4096}'?|"(?:[^"\\]|\\.){0,4096}"?|\\"[^"]{0,4096}"?"""
_BARE = r"[^\s,;)}\]&'\"]"
_VALUE = rf"(?:{_QUOTED}|{_BARE}+(?:[,;)}}\]&]+(?![\w-]+[=:][^=\s]){_BARE}+)*)"
# A word of a command line ends with a blank, or with the quote of the text that it stands in.
_WORD = rf"(?:{_QUOTED}|[^\s'\"])(?:[^\s'\"\\]|\\.|['\"](?![\s,;:)}}\]]|\Z))*"
_UNSET = re.compile(r"(?:None|null|True|False|true|false|''|\"\"|\\\"\\\"|<[\w ]+>)\Z")

_ASSIGNED = re.compile(
    rf"(?P<head>(?<![\w-])(?:(?i:{_NAME})|{_ENVIRONMENT})(?:\\?[\"'])?\s{{0,4}}[=:]\s{{0,4}})(?P<value>{_VALUE})",
    re.DOTALL,
)
# `--api-k`, since argparse takes what begins an option.
_SECRET_OPTION = rf"--(?i:{_NAME}|[\w-]*token|(?:admin-)?api-k\w*)"
# A value on the next line was wrapped, unless that line has a time of its own.
_OPTION = re.compile(
    rf"(?P<head>{_SECRET_OPTION}(?:=|[^\S\n]+|\s+(?!\[[\d-]{{2,10}}[ :])))(?P<value>{_WORD})", re.DOTALL
)
_LISTED = re.compile(rf"(?P<head>{_SECRET_OPTION}\\?[\"'],\s{{0,4}})(?P<value>{_QUOTED})", re.DOTALL)
_HEADER = re.compile(
    r"(?P<head>(?i:authorization)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?i:(?:bearer|basic|token|digest)\s{1,4})?)"
    r"(?P<value>[^\s'\"\\]+)"
)
_BEARER = re.compile(r"(?P<head>\b(?i:bearer)\s{1,4})(?P<value>[^\s'\"\\]{4,})")
_URL = re.compile(r"(?P<head>\w{1,20}://[^\s/:@'\"]{0,256}:)(?P<value>[^\s/@'\"]{1,256})(?=@)")
_SHAPED = re.compile(
    r"(?P<head>)(?P<value>\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}))"
)
_RULES = (_HEADER, _BEARER, _ASSIGNED, _OPTION, _LISTED, _URL, _SHAPED)
# Without one of these no rule can match: most lines are passed on untouched, and fast.
_TRIGGER = re.compile(
    r"(?i:key|api-k|passw|passphrase|secret|authorization|bearer|token|credential|://|hf_|sk-|gh[pousr]_)"
)

SECRET_KEY = re.compile(rf"(?i:{_NAME})\Z|{_ENVIRONMENT}\Z")


def is_secret(name: str) -> bool:
    """Whether an argument or variable of this name holds a secret: `api_key`, `HF_TOKEN`, `api-key`."""
    return SECRET_KEY.match(name) is not None


def _masked(match: re.Match[str]) -> str:
    head, value = match.group("head"), match.group("value")
    if _UNSET.match(value):
        return head + value
    quote = re.match(r"\\?[\"']", value)
    mark = quote.group() if quote else ""
    # Newlines stay, so that line numbers do.
    return f"{head}{mark}{MASK}{mark}" + "\n" * value.count("\n")


def redact_text(text: str) -> str:
    """`text` with the values of secrets replaced by `***`; the number of its lines does not change."""
    record = "server_args=" in text
    if not record and not _TRIGGER.search(text):
        return text
    if record:
        text = _redact_records(text)
    for rule in _RULES:
        text = rule.sub(_masked, text)
    return text


def _redact_records(text: str) -> str:
    """A record may be wrapped anywhere, within a key or a secret: it is read whole first."""
    return mask_values(text, secrets_in(records.scan(numbered(text))))


def secrets_in(sources: Iterable[records.Source]) -> set[str]:
    """The values of secret arguments in records, as they stand there; of a cut one what is there of it."""
    return {
        value
        for source in sources
        for key, text in records.items(source, cut=True)
        if is_secret(key) and text[:1] in ("'", '"') and len(value := text.strip(text[0])) >= MIN_PIECE
    }


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """`text` without these values, broken over lines or not; the number of its lines does not change."""
    for secret in sorted(secrets, key=len, reverse=True):
        broken = re.compile(r"\r?\n?".join(re.escape(character) for character in secret))
        text = broken.sub(lambda match: MASK + "\n" * match.group().count("\n"), text)
    return text
