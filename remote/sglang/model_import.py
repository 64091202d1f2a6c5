"""A model file that fails to import, found minutes later as an unsupported architecture.

SGLang logs "Ignore import error when loading MODULE: ERROR" (models/registry.py) for each model file,
which is harmless for the dozens of models nobody asked for, and goes on: with the Transformers
implementation, or with "Model architectures [...] are not supported for now".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IMPORT_ERROR = re.compile(r"Ignore import error when loading (?P<module>[\w.]{1,200}): (?P<error>.{0,500})")
FALLBACK = re.compile(r"(?P<arch>\w{1,200}) has no SGLang implementation, falling back to Transformers")
UNSUPPORTED = re.compile(r"Model architectures \[?(?P<archs>[^\]]{1,200})\]? are not supported")

# Errors of a file that was damaged, as opposed to a package that is not installed.
_DAMAGED = re.compile(
    r"\((?P<file>[\w]{1,100})\.py, line \d+\)|invalid syntax|unexpected indent|unindent|is not defined"
    r"|was never closed|unterminated|expected an indented block"
)
_SUFFIX = re.compile(r"(?:ForCausalLM|ForConditionalGeneration|Model|LMHead|NextN|Eagle3?|Eagle)")
# Where the module is not the class name in small letters.
_MODULES = {"deepseekv3": "deepseek_v2", "deepseekv32": "deepseek_v2", "deepseekv2": "deepseek_v2"}


@dataclass(frozen=True)
class ImportFailure:
    """One "Ignore import error" line."""

    line: int
    module: str
    error: str
    text: str


def read(line: int, text: str) -> ImportFailure | None:
    """The import failure that a line reports, if it reports one."""
    match = IMPORT_ERROR.search(text)
    if match is None:
        return None
    module = match.group("module").rsplit(".", 1)[-1]
    return ImportFailure(line, module, match.group("error"), match.group())


def responsible(failures: tuple[ImportFailure, ...], architecture: str) -> ImportFailure | None:
    """The import failure that took `architecture` away: of the file itself before files that import it.
    None when no failure has to do with it."""
    name = _SUFFIX.sub("", architecture).lower()
    module = _MODULES.get(name)
    for failure in failures:
        if failure.module == module or failure.module.replace("_", "") == name:
            damaged = _DAMAGED.search(failure.error)
            origin = damaged and damaged.group("file")
            return next((other for other in failures if other.module == origin), failure)
    damaged_files = [failure for failure in failures if _DAMAGED.search(failure.error)]
    own = [
        failure
        for failure in damaged_files
        if (match := _DAMAGED.search(failure.error)) and match.group("file") == failure.module
    ]
    return next(iter(own or damaged_files), None)
