"""Where everything of the practice node lies: one directory, which `inv practice.down` removes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

# In the environment of every process of the practice node; its value is the node's directory.
MARKER = "FIXOPS_PRACTICE"


@dataclass(frozen=True)
class Layout:
    """The paths of one practice node. `root` is absolute and free of symlinks, as /proc shows it."""

    root: Path

    @property
    def node_json(self) -> Path:
        """The node's record: how to connect, the server's settings, the processes started."""
        return self.root / "node.json"

    @property
    def inventory(self) -> Path:
        return self.root / "inventory.yaml"

    @property
    def environment(self) -> Path:
        return self.root / "python"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Of whichever Python the node has; before it has one, of the Python that runs this."""
        libraries = self.environment / "lib"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return next(libraries.glob("python3.*"), libraries / version) / "site-packages"

    @property
    def target(self) -> Path:
        return self.root / "models" / "kimi-k2.5-int4"

    @property
    def draft(self) -> Path:
        return self.root / "eagle3" / "draft"

    @property
    def log(self) -> Path:
        """The server's stable log name."""
        return self.root / "logs" / "sglang_eagle3_fixed.log"

    @property
    def orphans_log(self) -> Path:
        return self.root / "logs" / "sglang_eagle3.log"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def nvidia_smi(self) -> Path:
        return self.bin / "nvidia-smi"

    @property
    def nvidia_smi_script(self) -> Path:
        return self.gpus / "nvidia_smi.py"

    @property
    def gpus(self) -> Path:
        return self.root / "gpus"

    @property
    def gpus_json(self) -> Path:
        return self.gpus / "gpus.json"

    @property
    def holders(self) -> Path:
        return self.gpus / "holders"

    @property
    def gpu_faults(self) -> Path:
        return self.gpus / "faults"

    @property
    def simulator(self) -> Path:
        return self.root / "simulator"

    @property
    def launcher(self) -> Path:
        return self.simulator / "launch_server.py"

    @property
    def simulator_settings(self) -> Path:
        return self.root / "simulator.json"

    @property
    def first_settings(self) -> Path:
        """Settings of servers that come up as fast as they can."""
        return self.root / "simulator-first.json"

    @property
    def old_settings(self) -> Path:
        """Settings of the old server."""
        return self.root / "simulator-old.json"

    @property
    def orphans_settings(self) -> Path:
        """Settings of the earlier server, whose ranks hold little."""
        return self.root / "simulator-orphans.json"

    @property
    def wiring(self) -> Path:
        return self.root / "wiring"

    @property
    def pristine(self) -> Path:
        """The wheel's text of the files that fixes touch: what old bytecode may have been made from."""
        return self.root / "pristine"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def ssh(self) -> Path:
        return self.root / "ssh"

    @property
    def faults(self) -> Path:
        """One folder per fault that is in force: what heals it."""
        return self.root / "faults"

    @property
    def restart_due(self) -> Path:
        """Is there while the server is older than files that were healed."""
        return self.root / "restart-due"


def here(override: str | None = None) -> Layout:
    """The practice node's layout: FIXOPS_PRACTICE_DIR, else `.practice` in the project's root."""
    given = override or os.environ.get("FIXOPS_PRACTICE_DIR")
    return Layout((Path(given).expanduser() if given else PROJECT / ".practice").resolve())
