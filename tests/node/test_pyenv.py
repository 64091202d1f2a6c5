"""What the server's interpreter would import: compared with what a real interpreter imports."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import venv
import zlib
from pathlib import Path
from typing import Any

import pytest

from remote.node import importing, pyenv
from tests.node.kit import ROOT, Probe

ASK = (
    "import json, sys; sys.path.append({root!r}); from remote.node import pyenv;"
    "print(json.dumps(pyenv.package(json.loads(sys.argv[1]), None)))"
)


class Interpreter:
    """A virtual environment of its own, as a node has it."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, with_pip=False, symlinks=True)
        self.python = directory / "bin/python"
        (self.site,) = directory.glob("lib/python*/site-packages")
        self.home = directory / "home"
        self.home.mkdir()

    def run(self, code: str, *args: str, cwd: Path, env: dict[str, str] | None = None) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [str(self.python), "-B", "-c", code, *args],
            cwd=cwd,
            env={**clean, "HOME": str(self.home), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr}"

    def package(self, cwd: Path, **env: str) -> dict[str, Any]:
        """What the operation says, asked from another directory; it must agree with what is imported."""
        params = json.dumps({"name": "sglang", "env": env, "cwd": str(cwd)})
        found: dict[str, Any] = json.loads(self.run(ASK.format(root=str(ROOT)), params, cwd=self.home))
        really = self.run("import sglang; print(sglang.__file__)", cwd=cwd, env=env)
        said = found["imported"]["origin"] if found["imported"] else None
        assert str(said) == really or (said is None and "No module named 'sglang'" in really)
        return found


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    return Interpreter(tmp_path / "venv")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    made = tmp_path / "cwd"
    made.mkdir()
    return made


def tree(root: Path, version: str) -> Path:
    """A source tree of the package in `root`."""
    (root / "sglang").mkdir(parents=True)
    (root / "sglang/__init__.py").write_text("")
    (root / "sglang/version.py").write_text(f'__version__ = "{version}"\n')
    return root


def metadata(site: Path, version: str, record: str = "", editable: Path | None = None) -> Path:
    info = site / f"sglang-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n\nText\n")
    (info / "RECORD").write_text(record)
    if editable is not None:
        url = {"dir_info": {"editable": True}, "url": editable.as_uri()}
        (info / "direct_url.json").write_text(json.dumps(url))
    return info


def wheel(site: Path, version: str) -> Path:
    tree(site, version)
    return metadata(
        site, version, "sglang/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
    )


def test_none(interpreter: Interpreter, cwd: Path) -> None:
    """Case 087: the interpreter that answers has no sglang, and says which interpreter it is."""
    found = interpreter.package(cwd)
    assert found["imported"] is None
    assert found["python"] == str(interpreter.python)


def test_wheel(interpreter: Interpreter, cwd: Path) -> None:
    info = wheel(interpreter.site, "0.5.9")
    found = interpreter.package(cwd)
    assert found["imported"] == {
        "origin": str(interpreter.site / "sglang/__init__.py"),
        "root": str(interpreter.site),
        "kind": "wheel",
        "version": "0.5.9",
        "dist_info": str(info),
        "record": True,
    }
    assert found["copies"] == []
    assert found["search_path"][0] == str(cwd)


def test_editable_by_path_file_beside_an_installed_copy(
    interpreter: Interpreter, cwd: Path, tmp_path: Path
) -> None:
    """Case 074: pip's copy and the checkout that an editable install points to; the path decides."""
    repository = tmp_path / "sgl workspace/sglang"
    tree(repository / "python", "0.5.10")
    metadata(interpreter.site, "0.5.9", editable=repository / "python")
    (interpreter.site / "__editable__.sglang.pth").write_text(str(repository / "python") + "\n")
    found = interpreter.package(cwd)
    assert found["imported"]["kind"] == "editable"
    assert found["imported"]["root"] == str(repository / "python")
    assert found["imported"]["version"] == "0.5.10"
    assert found["imported"]["record"] is False
    tree(interpreter.site, "0.5.9")
    both = interpreter.package(cwd)
    assert both["imported"]["root"] == str(interpreter.site)  # before the .pth's entry on the path
    assert both["imported"]["kind"] == "source"
    assert [(copy["root"], copy["kind"]) for copy in both["copies"]] == [
        (str(repository / "python"), "editable")
    ]


def test_editable_by_finder(interpreter: Interpreter, cwd: Path, tmp_path: Path) -> None:
    """As setuptools and scikit-build-core do it: no entry of the path shows where the package is."""
    repository = tmp_path / "checkout"
    origin = tree(repository / "python", "0.5.10") / "sglang/__init__.py"
    metadata(interpreter.site, "0.5.10", editable=repository)
    (interpreter.site / "__editable___sglang_finder.py").write_text(
        "import sys\nfrom importlib.util import spec_from_file_location\n"
        "class _EditableFinder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, fullname, path=None, target=None):\n"
        "        if fullname == 'sglang':\n"
        f"            return spec_from_file_location(fullname, {str(origin)!r})\n"
        "def install():\n    sys.meta_path.append(_EditableFinder)\n"
    )
    (interpreter.site / "__editable__.sglang-0.5.10.pth").write_text(
        "import __editable___sglang_finder; __editable___sglang_finder.install()\n"
    )
    found = interpreter.package(cwd)
    assert (found["imported"]["kind"], found["imported"]["root"]) == ("editable", str(repository / "python"))
    (cwd / "sglang").mkdir()  # a mere directory of that name is found before the appended finder is asked
    shadowed = interpreter.package(cwd)
    assert shadowed["imported"]["kind"] == "namespace"
    assert shadowed["imported"]["origin"] is None
    assert [copy["root"] for copy in shadowed["copies"]] == [str(repository / "python")]


def test_old_editable_by_egg_link(interpreter: Interpreter, cwd: Path, tmp_path: Path) -> None:
    tree(tmp_path / "checkout", "0.4.0")
    (interpreter.site / "easy-install.pth").write_text(str(tmp_path / "checkout") + "\n")
    (interpreter.site / "sglang.egg-link").write_text(f"{tmp_path / 'checkout'}\n.\n")
    found = interpreter.package(cwd)["imported"]
    assert (found["kind"], found["version"], found["dist_info"]) == ("editable", "0.4.0", None)


def test_two_installs_and_pythonpath(interpreter: Interpreter, cwd: Path, tmp_path: Path) -> None:
    wheel(interpreter.site, "0.5.9")
    other = tmp_path / "other"
    wheel(other, "0.5.8")
    found = interpreter.package(cwd, PYTHONPATH=f"{tmp_path / 'nothing'}:{other}")
    assert (found["imported"]["root"], found["imported"]["version"]) == (str(other), "0.5.8")
    assert [(copy["root"], copy["version"], copy["kind"]) for copy in found["copies"]] == [
        (str(interpreter.site), "0.5.9", "wheel")
    ]
    without = interpreter.package(cwd)
    assert without["imported"]["root"] == str(interpreter.site)
    assert without["copies"] == []  # nothing leads there any more


def test_working_directory_shadows(interpreter: Interpreter, cwd: Path) -> None:
    """A checkout in the directory where the server is started is imported in place of the installed one."""
    wheel(interpreter.site, "0.5.9")
    tree(cwd, "0.5.12.dev0")
    found = interpreter.package(cwd)
    assert found["imported"] == {
        "origin": str(cwd / "sglang/__init__.py"),
        "root": str(cwd),
        "kind": "source",
        "version": "0.5.12.dev0",
        "dist_info": None,
        "record": False,
    }
    assert [copy["why"] for copy in found["copies"]] == ["sys.path"]


def test_safe_path_leaves_the_working_directory_out(interpreter: Interpreter, cwd: Path) -> None:
    wheel(interpreter.site, "0.5.9")
    tree(cwd, "0.5.12")
    found = interpreter.package(cwd, PYTHONSAFEPATH="1")
    safe = sys.version_info >= (3, 11)
    assert found["imported"]["root"] == str(interpreter.site if safe else cwd)


def test_directory_without_init_does_not_shadow_an_installed_one(interpreter: Interpreter, cwd: Path) -> None:
    wheel(interpreter.site, "0.5.9")
    (cwd / "sglang").mkdir()
    found = interpreter.package(cwd)
    assert found["imported"]["root"] == str(interpreter.site)
    assert found["copies"] == []


def test_module_of_that_name(interpreter: Interpreter, cwd: Path) -> None:
    wheel(interpreter.site, "0.5.9")
    (cwd / "sglang.py").write_text("")
    found = interpreter.package(cwd)
    assert found["imported"]["kind"] == "module"
    assert [copy["root"] for copy in found["copies"]] == [str(interpreter.site)]


def test_relative_and_empty_pythonpath_entries(interpreter: Interpreter, cwd: Path) -> None:
    tree(cwd / "sub", "1")
    assert interpreter.package(cwd, PYTHONPATH="sub")["imported"]["root"] == str(cwd / "sub")
    assert interpreter.package(cwd, PYTHONPATH="")["imported"] is None


def test_leftover_metadata_of_an_older_version(interpreter: Interpreter, cwd: Path) -> None:
    wheel(interpreter.site, "0.5.9")
    metadata(interpreter.site, "0.5.8", "sglang/other.py,,\n")
    assert interpreter.package(cwd)["imported"]["version"] == "0.5.9"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("version.py", '__version__ = "0.5.9"\n', "0.5.9"),
        ("_version.py", "__version__ = version = '0.5.12'\n__version_tuple__ = (0,)\n", "0.5.12"),
        (
            "version.py",
            "try:\n    from sglang._version import __version__\nexcept ImportError:\n    pass\n",
            None,
        ),
        ("version.py", "__version__ = compute()\n", None),
    ],
)
def test_version_of_a_source_tree(tmp_path: Path, name: str, text: str, expected: str | None) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / name).write_text(text)
    assert pyenv.source_version(str(tmp_path), "sglang") == expected


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def test_compile_check_writes_nothing(probe: Probe, tmp_path: Path) -> None:
    label = str(tmp_path / "x.py")
    assert importing.compile_check({"path_label": label, "z": packed("a = 1\n")}, probe.ctx) == {
        "ok": True,
        "error": None,
    }
    found = importing.compile_check({"path_label": label, "z": packed("a = 1\ndef (:\n")}, probe.ctx)
    assert found["ok"] is False
    assert found["error"]["line"] == 2
    assert list(tmp_path.iterdir()) == []


def test_compile_files(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("a = 1\n")
    (tmp_path / "bad.py").write_text("a = (\n")
    names = [str(tmp_path / name) for name in ("good.py", "bad.py", "none.py")]
    found = importing.compile_files({"paths": names}, probe.ctx)
    assert [found[name]["ok"] for name in names] == [True, False, None]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("VALUE = 1\n", "imported"),
        ("print('noise')\nimport os; os.write(1, b'more noise')\n", "imported"),
        ("import torch_that_is_not_here\n", "not-possible"),
        ("from os import nothing_of_that_name\n", "not-possible"),
        ("from fakesgl import nothing_of_that_name\n", "failed"),
        ("import fakesgl.no_such_module\n", "failed"),
        ("import fakesgl.broken\n", "failed"),
        ("from fakesgl.part import thing\nlate = 1\n", "not-possible"),  # a circle the server may not enter
        ("def f(:\n", "failed"),
        ("undefined_name\n", "failed"),
        ("class A:\n    x = 1 / 0\n", "failed"),
        ("import fakesgl.needs_gpu\n", "not-possible"),
        ("raise SystemExit(3)\n", "failed"),
        ("import os; os.abort()\n", "not-possible"),
        ("import os; os._exit(0)\n", "not-possible"),
    ],
)
def test_import_check(probe: Probe, tmp_path: Path, text: str, outcome: str) -> None:
    """A module that cannot be imported for want of something else says nothing about the module."""
    package = tmp_path / "fakesgl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("x = (\n")
    (package / "needs_gpu.py").write_text("raise RuntimeError('no CUDA GPUs are available')\n")
    (package / "part.py").write_text("from fakesgl.model import late\nthing = 1\n")
    (package / "model.py").write_text(text)
    modules, env = ["fakesgl", "fakesgl.model", "fakesgl.never_asked"], {"PYTHONPATH": str(tmp_path)}
    if outcome == "imported":
        modules.pop()
    params = {"modules": modules, "env": env, "cwd": None, "timeout_s": 60}
    first, found = importing.import_check(params, probe.ctx)["modules"]
    assert (first["module"], first["outcome"]) == ("fakesgl", "imported")
    assert (found["module"], found["outcome"]) == ("fakesgl.model", outcome)
    assert found["file"] == (str(package / "model.py") if outcome == "imported" else None)
    assert not list(tmp_path.rglob("*.pyc"))


def test_import_that_hangs_is_ended(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(600)\n")
    env = {"PYTHONPATH": str(tmp_path)}
    params = {"modules": ["json", "hang"], "env": env, "cwd": str(tmp_path), "timeout_s": 5}
    found = importing.import_check(params, probe.ctx)["modules"]
    assert [(each["module"], each["outcome"]) for each in found] == [
        ("json", "imported"),
        ("hang", "timeout"),
    ]
