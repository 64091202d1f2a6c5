"""Secrets taken out of text: SGLang's records, command lines, HTTP headers, environments.

SGLang prints `api_key`, `admin_api_key` and `ssl_keyfile_password` in the clear, in its log and in
`/server_info` (sglang issue 37457). That a key is set stays visible: `None` and `''` are kept.
"""

from __future__ import annotations

import re

from . import records
from .lines import numbered

MASK = "***"

_NAME = (
    r"(?:[\w-]*(?:api[_-]?key|password|passwd|passphrase|secret|secret[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:access|auth|hf|bearer|api|github|session|refresh|id)[_-]?token))"
)
_ENVIRONMENT = r"(?:[A-Z][A-Z0-9_]*_)?(?:(?:API)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
# A value: quoted (possibly wrapped, cut, or escaped within JSON) or bare.
_QUOTED = r"""'(?:[^'\\]|\\.){0,4096}'?|"(?:[^"\\]|\\.){0,4096}"?|\\"[^"]{0,4096}"?"""
_VALUE = rf"(?:{_QUOTED}|[^\s,;)}}\]&'\"]+)"
_UNSET = re.compile(r"(?:None|null|True|False|true|false|''|\"\"|\\\"\\\"|<[\w ]+>)\Z")

_ASSIGNED = re.compile(
    rf"(?P<head>(?<![\w-])(?:(?i:{_NAME})|{_ENVIRONMENT})(?:\\?[\"'])?\s{{0,4}}[=:]\s{{0,4}})(?P<value>{_VALUE})",
    re.DOTALL,
)
_OPTION = re.compile(
    rf"(?P<head>--(?i:{_NAME}|[\w-]*token)(?:=|\s+|\\?[\"'],\s{{0,4}}))(?P<value>{_VALUE})", re.DOTALL
)
_HEADER = re.compile(
    r"(?P<head>(?i:authorization)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?i:(?:bearer|basic|token|digest)\s{1,4})?)"
    r"(?P<value>[^\s,;)}\]'\"\\]+)"
)
_BEARER = re.compile(r"(?P<head>\b(?i:bearer)\s{1,4})(?P<value>[A-Za-z0-9._~+/=-]{4,})")
_URL = re.compile(r"(?P<head>\w{1,20}://[^\s/:@'\"]{0,256}:)(?P<value>[^\s/@'\"]{1,256})(?=@)")
_SHAPED = re.compile(
    r"(?P<head>)(?P<value>\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}))"
)
_RULES = (_HEADER, _BEARER, _ASSIGNED, _OPTION, _URL, _SHAPED)
# Without one of these no rule can match: most lines are passed on untouched, and fast.
_TRIGGER = re.compile(
    r"(?i:key|passw|passphrase|secret|authorization|bearer|token|credential|://|hf_|sk-|gh[pousr]_)"
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
    """A record may be wrapped anywhere, within a key or a secret: read it whole, then take the secret out
    wherever it stands, broken over lines or not."""
    secrets = {
        value[1:-1]
        for source in records.scan(numbered(text))
        for key, value in records.items(source)
        if is_secret(key) and len(value) >= 6 and value[0] in "'\""
    }
    for secret in sorted(secrets, key=len, reverse=True):
        broken = re.compile(r"\r?\n?".join(re.escape(character) for character in secret))
        text = broken.sub(lambda match: MASK + "\n" * match.group().count("\n"), text)
    return text
