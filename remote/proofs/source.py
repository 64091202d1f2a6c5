"""Is the fix in the source files that the server's interpreter imports?"""

from __future__ import annotations

import os
from typing import Any

from .. import wiring
from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..fixes import FileState
from ..picture import Picture
from ..secrets import environment_of, missing
from .wired import unread

_DEPLOY = "inv deploy-fix"


def _remedy(picture: Picture, command: str = _DEPLOY) -> str:
    return f"{command} --node {picture.node.name}"


def file(picture: Picture) -> Check:
    """The patched tree is the one that the server imports (cases: two installs, a shadowing folder)."""
    id, expected = "source.file", f"one SGLang, imported by {picture.node.python}"
    package = picture.section("package")
    imported = package.get("imported")
    if not imported:
        return failed(
            id,
            expected,
            f"{picture.node.python} finds no sglang",
            *_no_package(picture),
            remedy="set `python` of this node to the interpreter that runs SGLang",
        )
    others = [copy for copy in package.get("copies", []) if copy["root"] != imported["root"]]
    evidence = [Evidence(imported["origin"], f"sglang {imported['version']} ({imported['kind']})")]
    evidence += [
        Evidence(copy["root"], f"another sglang {copy['version']}: {copy['why']}") for copy in others
    ]
    mismatch = _other_interpreter(picture)
    if mismatch:
        return failed(
            id,
            expected,
            mismatch.text,
            *evidence,
            mismatch,
            remedy=_remedy(picture, "inv restart"),
        )
    shadowed = _shadowed(picture, [copy["root"] for copy in others])
    if shadowed:
        remedy = _remedy(picture, "inv diagnose")
        return failed(id, expected, shadowed.text, shadowed, *evidence, remedy=remedy)
    picture.section("procs")
    unset = _unset(picture) if _launcher(picture) else []
    if unset:
        meant = picture.node.server.env["PYTHONPATH"]
        why = f"its PYTHONPATH is to be {meant}, and {unset[0]} is not set in your environment"
        remedy = f"export {unset[0]}, then: {_remedy(picture, 'inv verify')}"
        return unknown(id, expected, why, *evidence, remedy=remedy)
    unread = _unread(picture, others=len(others))
    if unread:
        return unknown(id, expected, unread, *evidence, remedy=_remedy(picture, "inv restart"))
    observed = imported["origin"] + (f" ({len(others)} other copies, not imported)" if others else "")
    return passed(id, expected, observed, *evidence)


def _no_package(picture: Picture) -> list[Evidence]:
    """Which copies there are where the interpreter imports none; nothing where one is imported, or the
    package could not be looked for."""
    package = picture.facts.get("package") or {}
    if "error" in package or package.get("imported"):
        return []
    path = ", ".join(package.get("search_path") or []) or "its search path"
    copies = [
        Evidence(copy["root"], f"sglang {copy['version']}: {copy['why']}") for copy in package["copies"]
    ]
    return [Evidence(picture.node.python, f"no sglang in {path}"), *copies]


def _uncovered(picture: Picture) -> list[Evidence]:
    covered = f"sglang {picture.version}; {picture.bundle.name} is for {picture.bundle.spec.sglang}"
    return [Evidence(picture.root or "installed package", covered)]


def _launcher(picture: Picture) -> dict[str, Any] | None:
    """The facts of the running server's launcher; None where none runs."""
    server = picture.ownership.server if picture.ownership else None
    if server is None or server.launcher is None:
        return None
    processes: list[dict[str, Any]] = picture.section("procs")["processes"]
    return next(each for each in processes if each["pid"] == server.launcher.pid)


def _other_interpreter(picture: Picture) -> Evidence | None:
    """The running server uses another interpreter, PYTHONPATH or folder than the one looked at."""
    raw = _launcher(picture)
    if raw is None:
        return None
    where = f"/proc/{raw['pid']}"
    # The helper runs in the inventory's interpreter: like is held against like.
    helper = picture.section("procs")["self"]
    if None not in (raw.get("root"), helper.get("root")) and raw["root"] != helper["root"]:
        return Evidence(f"{where}/root", "the running server is in a container, or under another root")
    found, ours = raw["interpreter"], helper["interpreter"]
    if found and ours and any(found[key] != ours[key] for key in ("environment", "file")):
        return Evidence(f"{where}/cmdline", f"the running server's interpreter is {found['program']}")
    if raw["exe"] and helper["exe"] and _binary(raw["exe"]) != _binary(helper["exe"]):
        return Evidence(f"{where}/exe", f"the running server's interpreter is {raw['exe']}")
    env = raw.get("env") or {}
    login = (picture.facts.get("node") or {}).get("pythonpath") or ""
    meant = environment_of(picture.node.server, os.environ).get("PYTHONPATH", login)
    found = env.get("PYTHONPATH") or ""
    if raw.get("env") is not None and found != meant and not _unset(picture):
        return Evidence(
            f"{where}/environ",
            f"the running server has PYTHONPATH={found or '(unset)'}, not {meant or '(unset)'}",
        )
    # `python -m` puts the working directory first on the search path.
    if raw.get("cwd_package") and "-m" in (raw.get("argv") or [])[:3] and raw["cwd"] != picture.root:
        return Evidence(
            f"{where}/cwd", f"the running server was started in {raw['cwd']}, which holds an sglang"
        )
    return None


def _unset(picture: Picture) -> list[str]:
    """What the inventory's PYTHONPATH names and is not set here."""
    return missing(picture.node.server.env.get("PYTHONPATH", ""), os.environ)


def _binary(exe: str) -> str:
    """The path of an executable, without the kernel's word that an update replaced the file since."""
    return exe.removesuffix(" (deleted)")


def _shadowed(picture: Picture, others: list[str]) -> Evidence | None:
    """A deploy patched one copy on the interpreter's path, and another one, without the fix, is imported."""
    if picture.fix is not None and picture.fix.state in ("ours", "native"):
        return None
    for deploy in reversed((picture.facts.get("state") or {}).get("deploys") or []):
        patched = [file["named"] for file in deploy.get("files") or [] if file["named"].endswith(".py")]
        if not patched or deploy.get("restored"):
            continue
        roots = [root for root in others if all(path.startswith(f"{root}/") for path in patched)]
        if roots:
            return Evidence(roots[0], f"deploy {deploy['id']} patched the copy in {roots[0]}, not this one")
        return None
    return None


def _unread(picture: Picture, *, others: int) -> str | None:
    """Why it is not known what the running server imports, beside `others` more copies of SGLang."""
    raw = _launcher(picture)
    if raw is None:
        return None
    if raw["env"] is None:
        return f"/proc/{raw['pid']}/environ cannot be read"
    if raw["interpreter"] is None and (others or raw["exe"] is None):
        program = (raw["argv"] or [raw["title"]])[0]
        return f"{others} other copies, and it cannot be read which interpreter `{program}` is"
    return None


def state(picture: Picture) -> Check:
    """Every edit of the bundle is in place: `ours`, or `native` where upstream has it."""
    id, expected = "source.state", f"{picture.bundle.name}: ours or native"
    if picture.fix is None:
        why = picture.problem or "no SGLang was found"
        return unknown(id, expected, why, *_no_package(picture), remedy=_remedy(picture, "inv fixes"))
    fix = picture.fix
    unfinished_first = sorted(fix.files, key=lambda file: file.state in ("ours", "native"))
    evidence = [each for file in unfinished_first for each in _edits(picture, file)]
    observed = fix.state + (" (with local changes)" if fix.local_changes else "")
    if fix.state == "native":
        range_ = picture.bundle.spec.native or "released with it"
        why = f"SGLang {fix.version} needs no edit (native: {range_})"
        return passed(id, expected, observed, Evidence(picture.bundle.name, why), *evidence)
    if fix.state == "ours":
        return passed(id, expected, observed, *evidence)
    if fix.state == "uncovered":
        return failed(
            id,
            expected,
            fix.problem or "the bundle does not cover this version",
            *_uncovered(picture),
            remedy=_remedy(picture, "inv fixes"),
        )
    remedy = _DEPLOY if fix.state != "foreign" else f"{_DEPLOY} --dry-run"
    return failed(id, expected, observed, *evidence, remedy=_remedy(picture, remedy))


def _edits(picture: Picture, file: FileState) -> list[Evidence]:
    path = picture.path_of(file.path)
    if not file.edits:
        return [Evidence(path, file.state)]
    found = []
    # What is still to do comes first: of a long list only the beginning is shown.
    for edit in sorted(file.edits, key=lambda edit: edit.state == "done"):
        where = f"{path}:{edit.line}" if edit.line else path
        found.append(Evidence(where, f"{edit.id}: {edit.state}" + (f" ({edit.found})" if edit.found else "")))
    return found


def compiles(picture: Picture) -> Check:
    """The node's own interpreter compiles each file of the bundle."""
    id = "source.compiles"
    expected = "every file of the bundle compiles on the node"
    if picture.fix is None or not picture.fix.files:
        evidence = _no_package(picture) if picture.fix is None else _uncovered(picture)
        why = "no file of the bundle was found"
        return unknown(id, expected, why, *evidence, remedy=_remedy(picture, "inv fixes"))
    bad, unseen, good = [], [], []
    for file in picture.fix.files:
        path = picture.path_of(file.path)
        verdict = picture.compile_errors.get(file.path)
        if verdict is None:
            unseen.append(Evidence(path, "not compiled: the file is absent or could not be read"))
        elif verdict["ok"] is None:
            unseen.append(Evidence(path, str(verdict["error"]["message"])))
        elif verdict["ok"]:
            good.append(Evidence(path, "compiles"))
        else:
            error = verdict["error"]
            bad.append(Evidence(f"{path}:{error.get('line') or '?'}", str(error.get("message"))))
    if bad:
        restore = f"{_DEPLOY} --from-pristine"
        return failed(id, expected, f"{bad[0].source}: {bad[0].text}", *bad, remedy=_remedy(picture, restore))
    if unseen:
        return unknown(id, expected, unseen[0].text, *unseen, *good, remedy=_remedy(picture, "inv fixes"))
    return passed(id, expected, f"{len(good)} files compile", *good)


def behaviour(picture: Picture) -> Check:
    """The installed hook and forward loop, run on symbols, deliver what the bundle promises.

    Asked with the ids that the bundle's configuration sets, so it is a claim about the source alone.
    """
    id = "source.behaviour"
    contract = picture.contract
    if contract is None:
        return skipped(id, "eager capture as promised", "the bundle promises no wiring")
    expected = f"eager capture [{', '.join(contract)}]"
    result = picture.meant.eager if picture.meant else None
    if result is None:
        return unknown(
            id,
            expected,
            "the source or a config.json could not be read, or does not take the bundle's ids",
            *unread(picture),
            remedy=_remedy(picture, "inv diagnose"),
        )
    evidence = Evidence(result.call_site or "installed source", result.explain)
    match wiring.compare(result, contract):
        case "match":
            return passed(id, expected, f"[{', '.join(result.layers or ())}]", evidence)
        case "unknown":
            return unknown(
                id, expected, result.unknown or "", evidence, remedy=_remedy(picture, "inv diagnose")
            )
        case _:
            return failed(
                id,
                expected,
                result.error or f"[{', '.join(result.layers or ())}]",
                evidence,
                remedy=_remedy(picture),
            )
