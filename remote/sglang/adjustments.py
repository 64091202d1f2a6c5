"""What SGLang made of the arguments it was asked for.

Three sources, the first that tells wins: the arguments that the caller requested, a command line in the
log, and the lines in which SGLang says that it changed something.
Those lines have no prefix before 0.5.11, so they are looked for anywhere in a line (sglang PR 22926).
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .args import redact_value
from .lines import Entry
from .modelpath import same_path
from .redact import is_secret

# Two spellings of one thing (server_args.py, _handle_speculative_decoding).
ALIASES = {("speculative_algorithm", "NEXTN", "EAGLE")}
# Spellings of an option that set another argument (server_args.py, add_cli_args).
_OPTIONS = {
    "tensor_parallel_size": "tp_size",
    "tp": "tp_size",
    "data_parallel_size": "dp_size",
    "dp": "dp_size",
    "pipeline_parallel_size": "pp_size",
    "pp": "pp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "model": "model_path",
    "speculative_draft_model": "speculative_draft_model_path",
}


@dataclass(frozen=True)
class Adjusted:
    """One argument that SGLang changed, or would. `requested`: None where nobody tells. `fatal`: the
    server exits instead, `effective` is None then. `line`: where the log says so, None where it follows
    from the values."""

    name: str
    requested: object
    effective: object
    why: str = ""
    fatal: bool = False
    line: int | None = None


def canonical(name: str) -> str:
    """SGLang's own name of an argument: `--tp-size`, `tp-size` and `tensor_parallel_size` are `tp_size`."""
    plain = name.lstrip("-").replace("-", "_")
    return _OPTIONS.get(plain, plain)


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)


# A pipe, a list of commands, the background, a redirection.
_SHELL = re.compile(r"[|&;<>]|\d{1,3}[<>]")


def _of_command(argv: Iterable[str]) -> Iterator[str]:
    """The words up to where a command ends, for which `;` and `&` may stick to its last word."""
    for word in argv:
        if _SHELL.match(word):
            return
        last = word.rstrip(";&")
        yield last
        if last != word:
            return


def from_argv(argv: Iterable[str]) -> dict[str, object]:
    """The options of a command line by SGLang's names, secrets masked: a flag is True, several values are a
    list. What the shell made of the rest of the line, such as `2>&1 | tee log`, is not of it."""
    found: dict[str, list[object]] = {}
    values: list[object] = []  # of what precedes the first option
    for word in _of_command(argv):
        if word.startswith("--") and len(word) > 2:
            option, has_value, text = word.partition("=")
            values = [_value(text)] if has_value else []
            found[canonical(option)] = values
        else:
            values.append(_value(word))
    # As a record's values are, so that what both sides hide alike is alike.
    return {
        name: redact_value(name, values if len(values) > 1 else next(iter(values), True))
        for name, values in found.items()
    }


# Examples and complaints, not commands.
_NO_COMMAND = re.compile(r"server_args=|error:|Warning|Example|<model>|recommended|deprecated")
_COMMAND = re.compile(r"sglang\.launch_server|sglang serve\b|# requested:|launch_server\.py")


def command_line(text: str) -> dict[str, object] | None:
    """The options requested by a command line that a log echoes; None if the text is none."""
    match = _COMMAND.search(text[:4_000])
    if match is None or " --" not in text or _NO_COMMAND.search(text[:4_000]):
        return None
    rest = text[match.end() :]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    found = from_argv(words)
    return found or None


def same(name: str, requested: object, effective: object) -> bool:
    """Whether an argument has the requested value; 6, "6" and 6.0 are the same value, so are two spellings of
    a path, and one value and the list of it where the argument is a list."""
    if requested == effective:
        return True
    if name.endswith("_path") and isinstance(requested, str) and isinstance(effective, str):
        return same_path(requested, effective)
    if isinstance(effective, list | tuple):
        asked = _value(requested) if isinstance(requested, str) else requested
        words = list(asked) if isinstance(asked, list | tuple) else [requested]
        return len(words) == len(effective) and all(
            same(name, one, other) for one, other in zip(words, effective, strict=True)
        )
    if isinstance(requested, list | tuple) and isinstance(effective, str):
        return same(name, " ".join(map(str, requested)), effective)
    if (name, str(requested).upper(), str(effective).upper()) in ALIASES:
        return True
    if isinstance(requested, str) and not isinstance(effective, str):
        return _value(requested) == effective
    return isinstance(effective, str) and not isinstance(requested, str) and _value(effective) == requested


def compare(requested: Mapping[str, object], effective: Mapping[str, object]) -> list[Adjusted]:
    """The requested arguments that have another value; keys in any spelling. An argument that this
    version does not know is left out: absent is not adjusted. So is a secret: of one that is masked
    nobody can tell, and one that is not must not be shown."""
    found = []
    for key, wanted in requested.items():
        name = canonical(key)
        if name in effective and not is_secret(name) and not same(name, wanted, effective[name]):
            found.append(Adjusted(name, wanted, effective[name], "requested and effective value differ"))
    return found


@dataclass(frozen=True)
class _Note:
    """A line in which SGLang says that it changes `name`. `effective`: what it says, else the record's."""

    pattern: re.Pattern[str]
    name: str
    effective: object = None


def _note(pattern: str, name: str, effective: object = None) -> _Note:
    return _Note(re.compile(pattern), name, effective)


# server_args.py of 0.5.3 to 0.5.12, arg_groups/speculative_hook.py and overrides.py of 0.5.15 to 0.5.23.
_NOTES = (
    _note(
        r"speculative_num_draft_tokens is adjusted to speculative_num_steps \+ 1",
        "speculative_num_draft_tokens",
    ),
    _note(
        r"speculative_num_draft_tokens is (?:set|not set; defaulting) to (?P<value>\d+)",
        "speculative_num_draft_tokens",
    ),
    _note(
        r"only supports (?P<name>speculative_\w+) == \d+; "
        r"overriding \w+=(?P<requested>\S+) to (?P<value>\d+)",
        "",
    ),
    _note(r"Max running requests is reset to (?P<value>\d+)", "max_running_requests"),
    _note(r"change page_size (?:from (?P<requested>\d+) )?to (?P<value>\d+)", "page_size"),
    _note(r"[Pp]age size is (?:set|changed) to (?P<value>\d+)", "page_size"),
    _note(
        r"Overlap schedule(?:r)? is (?:disabled|not implemented)|incompatible with overlap schedule"
        r"|The overlap scheduler and mixed chunked prefill are disabled",
        "disable_overlap_schedule",
        True,
    ),
    _note(r"overlap schedule is turned on", "disable_overlap_schedule", False),
    _note(r"[Mm]ixed chunked prefill (?:is|are) disabled", "enable_mixed_chunk", False),
    _note(r"will fallback to (?P<value>\w+) backend", "attention_backend"),
    _note(r"chunked prefill size is adjusted to (?P<value>\d+)", "chunked_prefill_size"),
    _note(
        r"expert parallel size is adjusted to be the same as the tensor parallel size ?\[(?P<value>\d+)\]",
        "ep_size",
    ),
    _note(r"speculative_adaptive disabled", "speculative_adaptive", False),
    _note(r"promoting --speculative-algorithm (?P<requested>\w+) to (?P<value>\w+)", "speculative_algorithm"),
)
_HINT = re.compile(
    r"adjusted|reset to|change page_size|age size is|verlap schedule|ixed chunked|fallback to|overriding "
    r"|is set to|defaulting to|speculative_adaptive disabled|promoting --"
)


def noted(item: Entry) -> list[Adjusted]:
    """What a line says that SGLang changed; empty for nearly every line. None of them is an error."""
    text = item.message[:2_000]
    if not _HINT.search(text) or "server_args=" in text:
        return []
    found = []
    for note in _NOTES:
        match = note.pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        said = groups.get("value")
        effective = note.effective if said is None else _value(said)
        requested = groups.get("requested")
        name = note.name or str(groups["name"])
        wanted = None if requested is None else _value(requested)
        found.append(Adjusted(name, wanted, effective, text.strip(), line=item.number))
    return found


def combine(
    requested: Mapping[str, object], effective: Mapping[str, object], notes: Iterable[Adjusted]
) -> tuple[Adjusted, ...]:
    """All adjustments of a boot, one per argument. A value in the record is what counts; a note gives the
    reason, and the value where the record has none."""
    found: dict[str, Adjusted] = {}
    wanted = {canonical(key): value for key, value in requested.items()}
    for note in notes:
        name = note.name
        value = effective.get(name, note.effective)
        asked = wanted.get(name, note.requested)
        if asked is not None and same(name, asked, value):
            continue
        found[name] = Adjusted(name, asked, value, note.why, line=note.line)
    for item in compare(requested, effective):
        found.setdefault(item.name, item)
    return tuple(found.values())
