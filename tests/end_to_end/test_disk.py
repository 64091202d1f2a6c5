"""A disk that is full, or may not be written to: nothing is half-changed."""

from __future__ import annotations

from tests.end_to_end.kit import DEEPSEEK, Practice
from tests.end_to_end.mounts import full, read_only


def refused(node: Practice, *words: str) -> None:
    """A deploy that is refused and leaves the node as it was; what it keeps about itself may be more."""

    def seen() -> dict[str, str]:
        return {name: about for name, about in node.everything().items() if "file state" not in name}

    before = seen()
    ran = node.inv("deploy-fix", "--yes", "--json").refuses(5, "practice", *words)
    assert seen() == before, ran


def test_no_room_for_the_originals(practice: Practice) -> None:
    practice.state.mkdir(mode=0o700, exist_ok=True)
    with full(practice.state, practice.site_packages):
        refused(practice, "no space left", str(practice.state), "df -h")


def test_no_room_for_the_new_files(practice: Practice) -> None:
    folder = practice.source(DEEPSEEK).parent
    with full(folder, practice.site_packages):
        refused(practice, "no space left", str(folder), "df -h")


def test_sglang_is_read_only(practice: Practice) -> None:
    folder = practice.source(DEEPSEEK).parent
    with read_only(folder, practice.site_packages):
        refused(practice, "read-only", str(folder))


def test_with_room_again_it_is_deployed(practice: Practice) -> None:
    done = practice.deploy()
    assert done.actions["push-code"]["changed"]
    told = practice.inv("history", "--json").is_(0)
    assert told.entry["actions"][-1]["outcome"] == "ok"
