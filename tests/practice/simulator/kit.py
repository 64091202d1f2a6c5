"""What the simulator's tests share: a small node with files from a real wheel, and servers that end with the
test.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import free_port, wait_until
from tests.wheels import wheel

ROOT = Path(__file__).resolve().parents[3]
READY = "The server is fired up and ready to roll!"
KIMI = "KimiK25ForConditionalGeneration"
DEEPSEEK = "DeepseekV3ForCausalLM"
PARTS = (
    "sglang/__init__.py",
    "sglang/_version.py",
    "sglang/launch_server.py",
    "sglang/srt/server_args.py",
    "sglang/srt/models/",
    "sglang/srt/managers/",
    "sglang/srt/model_executor/",
    "sglang/srt/model_loader/",
    "sglang/srt/entrypoints/engine.py",
    "sglang/srt/speculative/eagle_worker.py",
)


@dataclass(frozen=True)
class Node:
    """A directory with an SGLang tree, models, GPUs and the simulator."""

    root: Path

    @property
    def tree(self) -> Path:
        return self.root / "site"

    @property
    def gpus(self) -> Path:
        return self.root / "gpus"

    def draft(self, **changes: Any) -> None:
        """Change the draft's config.json."""
        path = self.root / "draft" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def layers(self, ids: object) -> None:
        self.draft(eagle_config={"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True})

    def settings(self, **values: Any) -> None:
        quick = {"gpus_dir": str(self.gpus), "speed": 0.05, "step_ms": 1.0, "health_s": 0.05, "drain_s": 0.05}
        (self.root / "home" / "simulator.json").write_text(json.dumps(quick | values))

    def holders(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.gpus.glob("*.json"))]


@dataclass(frozen=True)
class Running:
    """A server's launcher, in a session of its own."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self) -> None:
        wait_until(lambda: READY in self.log() or self.process.poll() is not None, 60, what="the ready line")
        assert READY in self.log(), self.log()[-3000:]

    def wait_end(self) -> int:
        """The launcher's exit code, once the rest of its session has ended too."""
        code = self.process.wait(60)
        wait_until(lambda: not session(self.process.pid), 20, what="the end of the session")
        return code

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            return reply.status, reply.read(), {name.lower(): value for name, value in reply.getheaders()}
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return json.loads(self.request("GET", path)[1])

    def health(self) -> int | None:
        """The status of /health, None while nobody listens."""
        try:
            return self.request("GET", "/health")[0]
        except OSError:
            return None

    def generate(self, tokens: int, text: object = "Hello", **more: Any) -> Any:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"text": text, "sampling_params": sampling, **more}
        return json.loads(self.request("POST", "/generate", body)[1])


def state_of(pid: int) -> str | None:
    """The state letter of a process, None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def session(sid: int) -> dict[int, str]:
    """Living processes of a session: pid -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == sid and fields[0] not in "ZX":
                found[int(path.name)] = (
                    (path / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
                )
    return found


def rank_pid(server: Running, rank: int) -> int:
    title = f"sglang::scheduler_TP{rank}"
    return next(pid for pid, command in session(server.process.pid).items() if command == title)


def unpack(version: str, into: Path) -> None:
    """The parts of a wheel that the simulator reads."""
    with zipfile.ZipFile(wheel(version)) as archive:
        for name in archive.namelist():
            if name.startswith(PARTS) or ".dist-info/METADATA" in name:
                archive.extract(name, into)


def make_node(root: Path, version: str, architecture: str) -> Node:
    """A node under `root`; the draft has the incident's layer ids and a trained input of [embed, in:3,
    in:31].
    """
    unpack(version, root / "site")
    home = root / "home"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "remote" / "practice" / "simulator", home / "simulator", ignore=ignore)
    shutil.copytree(ROOT / "remote" / "wiring", home / "wiring", ignore=ignore)
    (root / "gpus").mkdir()
    text = {"num_hidden_layers": 61, "first_k_dense_replace": 1, "hidden_size": 7168, "vocab_size": 163840}
    text["max_position_embeddings"] = 262144
    target = {"text_config": text} if architecture == KIMI else text
    models = {"target": {"architectures": [architecture], "model_type": "kimi_k25", **target}}
    models["draft"] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": 7168,
        "num_hidden_layers": 1,
    }
    models["draft"] |= {"vocab_size": 163840, "draft_vocab_size": 32000, "max_position_embeddings": 262144}
    for name, config in models.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
        for shard in range(1, 3 if name == "target" else 2):
            (root / name / f"model-{shard:05d}.safetensors").touch()
    node = Node(root)
    node.layers([2, 30, 58])
    node.settings()
    return node


def command(node: Node, port: int, *extra: str, tp: int = 2) -> list[str]:
    flags = {
        "--model-path": str(node.root / "target"),
        "--speculative-draft-model-path": str(node.root / "draft"),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--tp-size": str(tp),
        "--speculative-algorithm": "EAGLE3",
        "--speculative-eagle-topk": "1",
        "--speculative-num-steps": "5",
        "--speculative-num-draft-tokens": "6",
    }
    script = str(node.root / "home" / "simulator" / "launch_server.py")
    return [sys.executable, script, *(word for pair in flags.items() for word in pair), *extra]


@contextlib.contextmanager
def started(
    node: Node,
    *extra: str,
    tp: int = 2,
    port: int | None = None,
    faults: dict[str, Any] | None = None,
    **environ: str,
) -> Iterator[Running]:
    """A server started as the toolkit does: session of its own, output appended to a log.

    Killed at the end.
    """
    port = port or free_port()
    log = node.root / f"server-{port}-{len(list(node.root.glob('server-*')))}.log"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CUDA"))}
    env |= {"PYTHONPATH": str(node.tree), "FIXOPS_SIMULATOR_FAULTS": json.dumps(faults or {}), **environ}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(node, port, *extra, tp=tp),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=node.root,
            start_new_session=True,
        )
    try:
        yield Running(process, port, log)
    finally:
        for pid in session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(20)
        for path in node.gpus.iterdir():
            path.unlink(missing_ok=True)


def run(node: Node, *extra: str, **options: Any) -> tuple[int, str]:
    """A server that ends by itself: its exit code and its log."""
    with started(node, *extra, **options) as server:
        return server.wait_end(), server.log()


def write_weights(path: Path, shapes: dict[str, Sequence[int]]) -> None:
    """A safetensors file with a true header and no content."""
    header = {
        name: {"dtype": "BF16", "shape": list(shape), "data_offsets": [0, 0]}
        for name, shape in shapes.items()
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def edit(path: Path, old: str, new: str) -> None:
    """Replace text that is there, as an engineer would, leaving no stale bytecode behind."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


THREE_EDITS = (
    (
        "self.layers_to_capture = []\n",
        "self.layers_to_capture = []\n        self.capture_embedding = False\n",
    ),
    (
        "            self.model.layers_to_capture = [val + 1 for val in layer_ids]\n",
        "            self.model.capture_embedding = -1 in layer_ids\n"
        "            self.model.layers_to_capture = [val + 1 for val in layer_ids if val != -1]\n"
        '            logger.info(f"capturing {self.model.layers_to_capture} for {layer_ids}")\n',
    ),
    (
        "        aux_hidden_states = []\n",
        "        aux_hidden_states = []\n"
        "        if self.capture_embedding:\n"
        "            states = hidden_states.clone() if residual is None else hidden_states + residual\n"
        "            aux_hidden_states.append(states)\n",
    ),
)


def apply_three_edits(node: Node) -> None:
    """The incident's fix: right for prefill, without effect where decode replays CUDA graphs."""
    for old, new in THREE_EDITS:
        edit(node.tree / "sglang/srt/models/deepseek_v2.py", old, new)


def configure_graphs(node: Node) -> None:
    """The missing part: graphs are captured with the draft's own layers."""
    edit(
        node.tree / "sglang/srt/model_executor/cuda_graph_runner.py",
        "self.model_runner.model.set_eagle3_layers_to_capture()",
        "self.model_runner.model.set_eagle3_layers_to_capture(self.model_runner.eagle_aux_hidden_state_layer_ids)",
    )
