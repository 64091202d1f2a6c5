"""What the server's interpreter would import, and other copies that one might take for it.

Nothing of the package is imported to find out: the interpreter's own finders are asked (sys.meta_path, so
that the finders of editable installs answer too) with the search path that `python -m` would have.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH100, PTH109, PTH110, PTH111, PTH113, PTH118, PTH120, PTH207

from __future__ import annotations

import glob
import json
import os
import re
import sys

from .files import dist_infos
from .fsio import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

# Where another interpreter's packages or a container image's checkout may lie.
_ELSEWHERE = (
    "/usr/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/local/lib/python3*/site-packages",
    "/opt/*/lib/python3*/site-packages",
    "/sgl-workspace/sglang/python",
)


def search_path(env: dict[str, str | None], cwd: str | None) -> list[tuple[str, str]]:
    """[(directory, why)]: sys.path of `python -m MODULE` started by this interpreter's helper.

    The working directory (unless PYTHONSAFEPATH, from Python 3.11), PYTHONPATH, then what `site` made of
    this interpreter's own. `env` is added to the helper's environment as for the server.
    """
    wanted: dict[str, str | None] = {**os.environ, **env}
    path: list[tuple[str, str]] = []
    if not (wanted.get("PYTHONSAFEPATH") and sys.version_info >= (3, 11)):
        path.append((os.path.abspath(cwd or os.getcwd()), "working directory"))
    given = (wanted.get("PYTHONPATH") or "").split(os.pathsep) if wanted.get("PYTHONPATH") else []
    base = cwd or os.getcwd()
    path += [(os.path.normpath(os.path.join(base, entry)), "PYTHONPATH") for entry in given]
    own = {
        os.path.abspath(entry) for entry in (os.environ.get("PYTHONPATH") or "").split(os.pathsep) if entry
    }
    user_site = _user_site()
    for entry in sys.path:
        if not entry or os.path.abspath(entry) in own:
            continue
        if wanted.get("PYTHONNOUSERSITE") and os.path.abspath(entry) == user_site:
            continue
        path.append((entry, "user site" if os.path.abspath(entry) == user_site else "sys.path"))
    return path


def _user_site() -> str:
    base = os.environ.get("PYTHONUSERBASE") or os.path.expanduser("~/.local")
    return os.path.join(base, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def find(name: str, path: list[str]) -> tuple[str | None, list[str]] | None:
    """(origin, locations) of a top-level package as the finders see it, None if they do not find it."""
    import importlib
    from importlib.machinery import PathFinder

    importlib.invalidate_caches()
    for finder in sys.meta_path:
        look = getattr(finder, "find_spec", None)
        spec = PathFinder.find_spec(name, path) if finder is PathFinder else look and look(name, None)
        if spec is not None:
            return spec.origin, list(spec.submodule_search_locations or ())
    return None


def describe(name: str, root: str, sites: list[str]) -> dict[str, Any]:
    """{root, kind, version, dist_info, record} of the copy whose package directory lies in `root`.

    kind "wheel": RECORD lists its files. "editable": another directory's metadata points here. Else "source".
    """
    for folder in dist_infos(root, name):
        try:
            recorded = f"\n{name}/__init__.py," in "\n" + read_bytes(f"{folder}/RECORD").decode(
                "utf-8", "replace"
            )
        except OSError:
            continue
        if recorded:
            facts = {"root": root, "kind": "wheel", "dist_info": folder, "record": True}
            return {**facts, "version": metadata_version(folder)}
    real = os.path.realpath(root)
    for site in sites:
        for folder in dist_infos(site, name):
            location = editable_location(folder)
            # The project's directory, or one below it (sglang's is python/ of its repository).
            if location and (real == location or real.startswith(location + os.sep)):
                facts = {"root": root, "kind": "editable", "dist_info": folder, "record": False}
                return {**facts, "version": source_version(root, name) or metadata_version(folder)}
        if os.path.exists(os.path.join(site, f"{name}.egg-link")) and site != root:
            text = read_bytes(os.path.join(site, f"{name}.egg-link")).decode("utf-8", "replace")
            if os.path.realpath(text.partition("\n")[0]) == real:
                facts = {"root": root, "kind": "editable", "dist_info": None, "record": False}
                return {**facts, "version": source_version(root, name)}
    facts = {"root": root, "kind": "source", "dist_info": None, "record": False}
    return {**facts, "version": source_version(root, name)}


def metadata_version(folder: str) -> str | None:
    """From a metadata folder's METADATA."""
    try:
        text = read_bytes(os.path.join(folder, "METADATA"), 65536).decode("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
    return match.group(1) if match else None


def source_version(root: str, name: str) -> str | None:
    """What the package's _version.py or version.py assigns; None when it is computed."""
    for module in ("_version.py", "version.py"):
        try:
            text = read_bytes(os.path.join(root, name, module), 65536).decode("utf-8", "replace")
        except OSError:
            continue
        match = re.search(r"^__version__ *=[^'\"#\n]*['\"]([^'\"\n]+)['\"]", text, re.MULTILINE)
        if match:
            return match.group(1)
    return None


def editable_location(folder: str) -> str | None:
    """Where an editable install's project lies, by its direct_url.json (PEP 610)."""
    try:
        found = json.loads(read_bytes(os.path.join(folder, "direct_url.json")))
        if not found["dir_info"]["editable"] or not found["url"].startswith("file://"):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    from urllib.parse import unquote

    return os.path.realpath(unquote(found["url"][len("file://") :]))


def package(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{name, env, cwd} -> {python, imported, copies, search_path}.

    `imported`: {origin: path of __init__.py, root, kind: "wheel|editable|source|namespace|module", version,
    dist_info, record}, or null when the interpreter finds none. A namespace (a directory without
    __init__.py) or a module (NAME.py) shadows the package. `copies`: [{root, version, kind, why}] of
    every other one on the search path, in site-packages, dist-packages and user site.
    """
    name = params.get("name") or "sglang"
    path = search_path(params.get("env") or {}, params.get("cwd"))
    places = [*path, *((place, "site-packages of an interpreter") for place in _sites())]
    sites = list(dict.fromkeys(place for place, _ in places))
    found = find(name, [place for place, _ in path])
    imported: dict[str, Any] | None = None
    if found is not None:
        origin, locations = found
        if origin is None or not origin.endswith("__init__.py"):
            kind = "namespace" if locations else "module"
            root = os.path.dirname((locations or [origin or ""])[0])
            imported = {"root": root, "kind": kind, "version": None, "dist_info": None, "record": False}
        else:
            imported = describe(name, os.path.dirname(os.path.dirname(origin)), sites)
        imported["origin"] = origin
    linked = [location for site in sites for folder in dist_infos(site, name) for location in _roots(folder)]
    places += [(location, "editable install") for location in linked]
    seen = {os.path.realpath(imported["root"])} if imported else set()
    copies = []
    for place, why in places:
        real = os.path.realpath(place)
        if real not in seen and os.path.isfile(os.path.join(place, name, "__init__.py")):
            seen.add(real)
            facts = describe(name, place, sites)
            copies.append({**{key: facts[key] for key in ("root", "version", "kind")}, "why": why})
    return {
        "python": sys.executable,
        "imported": imported,
        "copies": copies,
        "search_path": [place for place, _ in path],
    }


def _roots(folder: str) -> list[str]:
    location = editable_location(folder)
    return [location, os.path.join(location, "python"), os.path.join(location, "src")] if location else []


def _sites() -> list[str]:
    """Directories of installed packages that need not be on this interpreter's path."""
    return [_user_site(), *(place for pattern in _ELSEWHERE for place in sorted(glob.glob(pattern)))]


OPS = {"facts.package": package}
