"""First code that runs on the node: imports the modules that were sent as text, then starts main.py.

The text of this file is executed by the bootstrap on the command line (see remote/bootstrap.py), which then
calls `run` with the JSON that was sent behind it: {"modules": {name: source}, "ops": {operation: module}}.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

PACKAGE = "fixops_node"


class SourceFinder:
    """Finder and loader of modules that exist only as text; one per helper, for its whole life."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = {
            PACKAGE if name == "__init__" else PACKAGE + "." + name: sources[name] for name in sources
        }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The import system's question; None leaves it to the other finders."""
        del path, target
        if name not in self.sources:
            return None
        loader: Any = self
        return ModuleSpec(name, loader, origin=self.filename(name), is_package=name == PACKAGE)

    def filename(self, name: str) -> str:
        """What tracebacks call the module."""
        return "<" + name.replace(".", "/") + ".py>"

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing special: an ordinary module."""
        del spec

    def exec_module(self, module: ModuleType) -> None:
        """Compiled only when it is imported: an operation that is not used costs nothing."""
        name = module.__name__
        exec(compile(self.sources[name], self.filename(name), "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name: str) -> str:
        """Lets tracebacks show lines."""
        return self.sources[name]


def run(data: bytes, nonce: str) -> None:
    """Make the sent modules importable as `fixops_node` and serve. Never returns."""
    sent = json.loads(data.decode("utf-8"))
    sys.meta_path.insert(0, SourceFinder(sent["modules"]))
    import_module(PACKAGE + ".main").start(nonce, sent["ops"])
