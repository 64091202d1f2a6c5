"""Fix bundles: what templates/fixes/NAME/bundle.yaml may say, and how it is read (docs/fixes.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NoReturn, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from .edits import Edit, Kind
from .errors import BundleError
from .trees import parse_snippet
from .unidiff import Patch, PatchProblem, parse_patch
from .yamlfile import Document, load_document

TEMPLATES = Path(__file__).resolve().parent.parent / "templates" / "fixes"
FILE_NAME = "bundle.yaml"
GUIDE = "see docs/fixes.md"


def _specifiers(value: object) -> SpecifierSet:
    if isinstance(value, SpecifierSet):
        return value
    try:
        found = SpecifierSet(str(value)) if isinstance(value, str) else _fail("a text like '>=0.5.5,<0.5.11'")
    except InvalidSpecifier:
        _fail("a range of versions like '>=0.5.5,<0.5.11'")
    if any(each.operator == "===" for each in found):  # compares as text, what no version need be
        _fail("a range of versions like '>=0.5.5,<0.5.11' (for one version: '==0.5.9')")
    return found


def _fail(wanted: str) -> NoReturn:
    raise ValueError(f"should be {wanted}")


Versions = Annotated[SpecifierSet, BeforeValidator(_specifiers)]
DraftInput = Annotated[str, Field(pattern=r"^(embed|in:[1-9][0-9]*)$")]
KeyPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class Contract(_Strict):
    """What the draft must be given: `embed`, or `in:K`, the input of 0-based layer K."""

    draft_input: list[DraftInput] = Field(min_length=1)
    layers: int | None = Field(default=None, ge=1)


class EditEntry(_Strict):
    """One edit as it is written: `where`, exactly one of after, before, replace, at, and `code`."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    why: str | None = None
    where: str = Field(default="", pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?$")
    after: str | None = None
    before: str | None = None
    replace: str | None = None
    at: Literal["start", "end"] | None = None
    code: str
    elsewhere: bool = False

    @model_validator(mode="after")
    def _complete(self) -> EditEntry:
        kinds = [k for k in ("after", "before", "replace", "at") if getattr(self, k) is not None]
        if len(kinds) != 1:
            has = ", ".join(kinds) or "none"
            _fail(f"an edit with exactly one of after, before, replace, at (edit {self.id} has {has})")
        if self.anchor is not None:
            _check_code(self.anchor, self.id, "the anchor")
        _check_code(self.code, self.id, "the code")
        if self.replace is not None and _ends_in_comment(self.code):
            _fail(f"code without a comment on its last line, where the file's own may come (edit {self.id})")
        return self

    @property
    def anchor(self) -> str | None:
        return self.after or self.before or self.replace

    def as_edit(self) -> Edit:
        given = next((k for k in get_args(Kind) if getattr(self, k, None) is not None), None)
        kind: Kind = given or ("start" if self.at == "start" else "end")
        return Edit(self.id, self.where, kind, self.anchor or "", self.code, self.elsewhere)


def _check_code(code: str, edit: str, what: str) -> None:
    try:
        statements = parse_snippet(code)
    except SyntaxError as error:
        _fail(f"Python code ({what} of edit {edit}: {error.msg}, line {error.lineno} of it)")
    if not statements:
        _fail(f"at least one Python statement ({what} of edit {edit})")
    lines = [s.lineno for s in statements]
    if code.rstrip("\n").count("\n") + 1 != statements[-1].end_lineno or len(set(lines)) != len(lines):
        _fail(f"whole lines that end with the last statement, one statement a line ({what} of edit {edit})")


def _ends_in_comment(code: str) -> bool:
    last = parse_snippet(code)[-1]
    return bool(code.rstrip("\n").split("\n")[-1].encode("utf-8")[last.end_col_offset :].strip())


class FileEntry(_Strict):
    """What is done to one file (path relative to the directory that holds the `sglang` package)."""

    path: str
    versions: Versions | None = None
    introduces: list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]] = []
    edits: list[EditEntry] = []
    patch: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> FileEntry:
        path = PurePosixPath(self.path)
        written_otherwise = str(path) != self.path  # sglang//a.py: another entry's file by another name
        odd = written_otherwise or path.is_absolute() or ".." in path.parts
        if odd or path.parts[:1] != ("sglang",) or path.suffix != ".py":
            _fail("a file with a path like sglang/srt/models/deepseek_v2.py")
        if bool(self.edits) == (self.patch is not None):
            _fail(f"a file with either edits or patch ({self.path})")
        ids = [edit.id for edit in self.edits]
        if len(set(ids)) != len(ids):
            _fail(f"a file whose edits have different ids ({self.path})")
        return self


def _json_value(value: object) -> object:
    """YAML has more than JSON: a day without quotes, .nan, numbers as keys. None could be read back."""
    try:
        same = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value
    except (TypeError, ValueError):
        same = False
    wanted = "a value that JSON has: text in quotes, a finite number, true, false, null, a list or a mapping"
    return value if same else _fail(wanted)


class ConfigEntry(_Strict):
    """Values that a JSON file must have. `draft` is config.json in the draft model's directory."""

    target: Literal["draft"]
    versions: Versions | None = None
    set: dict[KeyPath, Annotated[Any, AfterValidator(_json_value)]] = Field(min_length=1)


def _marker(value: str) -> str:
    try:
        groups = re.compile(value).groupindex
    except re.error as error:
        _fail(f"a regular expression ({error})")
    if "draft_input" not in groups:
        _fail("a regular expression with a group (?P<draft_input>...)")
    return value


class BundleFile(_Strict):
    """The whole of bundle.yaml. `marker`: what the patched code logs, as a regular expression."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = Field(min_length=1)
    why: str = Field(min_length=1)
    extends: str | None = None
    sglang: Versions
    native: Versions | None = None
    contract: Contract | None = None
    marker: Annotated[str, AfterValidator(_marker)] | None = None
    files: list[FileEntry] = []
    config: list[ConfigEntry] = []

    @model_validator(mode="after")
    def _does_something(self) -> BundleFile:
        if not self.files and not self.config:
            _fail("a bundle with files or config: this one does nothing")
        return self


class Bundle(_Strict):
    """A bundle that was read: bundle.yaml, the patches beside it, and where it came from."""

    spec: BundleFile
    directory: Path
    digest: str
    patches: dict[str, Patch]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def why(self) -> str:
        return self.spec.why

    @property
    def sglang(self) -> SpecifierSet:
        return self.spec.sglang

    @property
    def contract(self) -> Contract | None:
        return self.spec.contract

    @property
    def marker(self) -> str | None:
        return self.spec.marker

    def is_native(self, version: str) -> bool:
        """Whether the source of this version already does what the fix would add."""
        return covers(self.spec.native, version)

    def is_covered(self, version: str) -> bool:
        return self.is_native(version) or covers(self.spec.sglang, version)

    def entries(self, version: str) -> list[FileEntry]:
        """What is done to which file in this version."""
        if self.is_native(version) or not self.is_covered(version):
            return []
        return [entry for entry in self.spec.files if covers(entry.versions, version, unset=True)]

    def config(self, version: str | None) -> list[ConfigEntry]:
        """The config entries of this version; of an unknown version all of them."""
        if version is None:
            return self.spec.config
        return [entry for entry in self.spec.config if covers(entry.versions, version, unset=True)]


def covers(range_: SpecifierSet | None, version: str, *, unset: bool = False) -> bool:
    """Whether `version` is in the range. Pre-releases and development versions never are.

    A version like 0.5.11.dev3 is older than 0.5.11 and yet not in `<0.5.11` (PEP 440), so that it
    would fall between the edits of two ranges; 0.5.9.post1 and 0.5.9+cu128 are covered.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    if range_ is None:
        return unset and not parsed.is_prerelease
    return range_.contains(parsed, prereleases=False)


def load_bundle(directory: Path, *, extended_by: tuple[str, ...] = ()) -> Bundle:
    """Read a bundle. Raises BundleError with file, line and, for a wrong key, the nearest valid one.

    What a bundle that `extends` another does not say is as in that one. `extended_by`: the names of the
    bundles for which this one is read.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        raise BundleError(f"{path} does not exist", hint="`inv fixes` lists the bundles; " + GUIDE)
    document = load_document(path, BundleError)
    base = _base(document, directory, extended_by)
    try:
        spec = BundleFile.model_validate({**_inherited(base), **document.data})
    except ValidationError as error:
        raise BundleError(document.describe(error, BundleFile), hint=GUIDE) from None
    if spec.name != directory.name:
        _refuse(document, ("name",), f"name is '{spec.name}' but the directory is '{directory.name}'")
    digest = hashlib.sha256(path.read_bytes())
    patches: dict[str, Patch] = {}
    if base is not None:
        digest.update(base.digest.encode())
        if "files" not in document.data:
            return Bundle(spec=spec, directory=directory, digest=digest.hexdigest(), patches=base.patches)
    for index, entry in enumerate(spec.files):
        if entry.patch is None or entry.patch in patches:
            continue
        patches[entry.patch] = _load_patch(document, directory, index, entry)
        digest.update((directory / entry.patch).read_bytes())
    _no_overlap(document, spec)
    return Bundle(spec=spec, directory=directory, digest=digest.hexdigest(), patches=patches)


def _base(document: Document, directory: Path, extended_by: tuple[str, ...]) -> Bundle | None:
    """The bundle that this one extends: beside it, else one that is shipped."""
    name = document.data.get("extends")
    if not isinstance(name, str):
        return None  # absent, or no name: the model says so
    if name in (*extended_by, directory.name):
        _refuse(document, ("extends",), f"'{name}' would extend itself")
    for home in (directory.parent, TEMPLATES):
        if name and Path(name).name == name and (home / name / FILE_NAME).is_file():
            return load_bundle(home / name, extended_by=(*extended_by, directory.name))
    known = sorted(p.parent.name for p in TEMPLATES.glob(f"*/{FILE_NAME}"))
    return _refuse(document, ("extends",), f"there is no bundle '{name}'{Document.nearest(name, known)}")


def _inherited(base: Bundle | None) -> dict[str, Any]:
    if base is None:
        return {}
    own = {"name", "title", "why", "extends"}
    return {key: getattr(base.spec, key) for key in BundleFile.model_fields if key not in own}


def _refuse(document: Document, where: Sequence[str | int], message: str) -> NoReturn:
    raise BundleError(f"{document.place(where)}: {message}", hint=GUIDE)


def _load_patch(document: Document, directory: Path, index: int, entry: FileEntry) -> Patch:
    assert entry.patch is not None
    where = ("files", index, "patch")
    if PurePosixPath(entry.patch).name != entry.patch:
        _refuse(document, where, "patch is not the name of a file in the bundle's own directory")
    try:
        patch = parse_patch((directory / entry.patch).read_bytes())
    except OSError as error:
        _refuse(document, where, f"{entry.patch} cannot be read: {error.strerror}")
    except PatchProblem as problem:
        raise BundleError(
            f"{directory / entry.patch}:{problem.line}: {problem.message}", hint=GUIDE
        ) from None
    if patch.path is not None and not entry.path.endswith(patch.path):
        _refuse(document, where, f"{entry.patch} is a patch of {patch.path}, not of {entry.path}")
    return patch


def _no_overlap(document: Document, spec: BundleFile) -> None:
    """A patch must be all that is done to a file; two entries of edits must not share an id."""
    for index, entry in enumerate(spec.files):
        for other in spec.files[:index]:
            if other.path != entry.path or not _may_meet(other.versions, entry.versions):
                continue
            if entry.patch or other.patch:
                _refuse(
                    document,
                    ("files", index, "path"),
                    f"{entry.path} has a patch and more; give both `versions`",
                )
            shared = {e.id for e in entry.edits} & {e.id for e in other.edits}
            if shared:
                _refuse(document, ("files", index, "path"), f"{entry.path} has two edits '{min(shared)}'")


def _may_meet(a: SpecifierSet | None, b: SpecifierSet | None) -> bool:
    """Whether two ranges may share a version: tried at their own bounds and just beside them."""
    if a is None or b is None:
        return True
    both = a & b
    bounds = {Version(s.version.removesuffix(".*")) for s in both}
    tries = {str(v) for v in bounds} | {f"{v.base_version}.post999" for v in bounds}
    return any(both.contains(v, prereleases=False) for v in tries)


def list_bundles(root: Path = TEMPLATES, extra: Sequence[Path] = ()) -> list[Bundle]:
    """The bundles under `root` and the `extra` directories, by name. Raises BundleError."""
    found: dict[str, Bundle] = {}
    for base in [root, *extra]:
        for path in sorted(base.glob(f"*/{FILE_NAME}")):
            bundle = load_bundle(path.parent)
            if bundle.name in found:
                raise BundleError(
                    f"'{bundle.name}' is there twice: {found[bundle.name].directory} and {path.parent}",
                    hint="rename one",
                )
            found[bundle.name] = bundle
    return [found[name] for name in sorted(found)]


def names(root: Path = TEMPLATES, extra: Sequence[Path] = ()) -> list[str]:
    """What a bundle may be called by, none of them read."""
    return sorted(path.parent.name for base in [root, *extra] for path in base.glob(f"*/{FILE_NAME}"))


def find_bundle(name: str, root: Path = TEMPLATES, extra: Sequence[Path] = ()) -> Bundle:
    """The bundle `name`. Raises BundleError that names the nearest one."""
    for base in [root, *extra]:
        if name and Path(name).name == name and (base / name / FILE_NAME).is_file():
            return load_bundle(base / name)
    known = names(root, extra)
    raise BundleError(
        f"there is no fix '{name}'{Document.nearest(name, known)}",
        hint=f"known: {', '.join(known) or 'none'}",
    )
