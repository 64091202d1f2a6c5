"""Entry script: `PYTHON DIR/simulator/launch_server.py --model-path ...`, as `python -m sglang.launch_server`
is.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> int:
    here = Path(__file__).absolute().parent
    # A script's own directory comes first in sys.path (unless Python was told not to); the package needs its
    # parent there instead, and the real import of sglang that is imitated (see install.py) must see neither.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    sys.path.insert(0, str(here.parent))
    launcher = importlib.import_module(f"{here.name}.launcher")
    importlib.import_module(
        "encodings.idna"
    )  # sockets load it late: never while a forked child holds the import lock
    return int(launcher.main(sys.argv[1:], home=here.parent))


if __name__ == "__main__":
    sys.exit(main())
