"""The models registry: which model files import, which lines it logs, and what a target's class has."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from .install import Install

MODELS = "sglang/srt/models"
_IMPORT = re.compile(
    r"^(?:from|import) +sglang\.srt\.models\.(\w+)|^from +sglang\.srt\.models +import +(\w+)", re.MULTILINE
)
# Model files of which the node lacks what they need, as on most nodes: lines that are no failure of anything.
_USUAL = {
    "midashenglm": "No module named 'torchaudio'",
    "glm_ocr": "No module named 'transformers.models.glm_ocr'",
}


def failing_imports(install: Install, broken: Mapping[str, str]) -> dict[str, str]:
    """Module name -> reason for all model files that do not import.

    `broken` are those with a syntax error and its message; every module fails that imports one of them,
    directly or through others (models/registry.py: import_model_classes).
    """
    paths = {path.stem: path for path in install.path(MODELS).glob("*.py")}
    failing = {name: text for name, text in _USUAL.items() if name in paths} | dict(broken)
    if not broken:
        return failing
    imports = {}
    for name, path in paths.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        imports[name] = {first or second for first, second in _IMPORT.findall(text)}
    causes = dict(broken)
    while causes:
        more = {}
        for name, others in imports.items():
            cause = next((other for other in sorted(others) if other in causes), None)
            if name not in failing and cause:
                more[name] = causes[cause]
        failing |= more
        causes = more
    return failing


def ignored_imports(failing: Mapping[str, str]) -> list[str]:
    """The registry's lines, in the order in which pkgutil finds the modules."""
    package = MODELS.replace("/", ".")
    return [f"Ignore import error when loading {package}.{name}: {failing[name]}" for name in sorted(failing)]


def class_members(sources: Mapping[str, str], name: str) -> frozenset[str] | None:
    """Methods of class `name` and of its bases, as far as `sources` hold them; None if the class is in none
    of them.
    """
    classes: dict[str, ast.ClassDef] = {}
    for path, text in sources.items():
        if path.startswith(MODELS):
            classes |= {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    found: set[str] = set()
    waiting = [name]
    while waiting:
        node = classes.pop(waiting.pop(), None)
        if node is not None:
            found |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            waiting += [ast.unparse(base) for base in node.bases]
    return frozenset(found)
