"""What reaches the draft's `fc` in every forward mode, computed from SGLang's installed source text.

The hook and the forward loop of the installed model run on symbolic values in a small interpreter; no file
of SGLang is imported or executed.
"""

from .applies import applies
from .engine import Behaviour, behaviour, compute, native_ids
from .needs import needed_files
from .results import MODES, ModeResult, Wiring, compare, to_json

__all__ = [
    "MODES",
    "Behaviour",
    "ModeResult",
    "Wiring",
    "applies",
    "behaviour",
    "compare",
    "compute",
    "native_ids",
    "needed_files",
    "to_json",
]
