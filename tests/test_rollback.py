"""Which deploy `inv rollback` undoes."""

from __future__ import annotations

from typing import Any

import pytest

from remote.errors import RefusedError
from remote.rollback import choose
from tests import changes, pictures


def deploys(*servers: str | None) -> changes.Change:
    """Deploys in place, d0 and on, each made for one of the inventory's servers."""
    made = [{"id": f"d{n}", "files": [{}], "about": {"server": name}} for n, name in enumerate(servers)]

    def change(facts: dict[str, Any]) -> None:
        facts["state"]["deploys"] = made

    return change


OURS = pictures.NODE.server_name


@pytest.mark.parametrize(
    ("servers", "chosen"), [((OURS, OURS), "d1"), ((OURS, "other"), "d0"), ((OURS, None), "d1")]
)
def test_the_last_deploy_that_was_made_for_this_server_is_undone(
    servers: tuple[str | None, ...], chosen: str
) -> None:
    """One machine may serve two, and they share what is kept there."""
    assert choose(changes.node(deploys(*servers)), None)["id"] == chosen


def test_the_deploy_before_a_damaged_record_is_undone_by_its_name_only() -> None:
    """It was taken for the last one: its files went, and those of the last one stayed."""

    def damaged(facts: dict[str, Any]) -> None:
        facts["state"]["deploys"].append({"id": "d9", "unreadable": "/s/manifest.json: Expecting value"})

    found = changes.node(deploys(OURS, OURS), damaged)
    with pytest.raises(RefusedError, match="the record of the last deploy, d9, is damaged: /s/man") as caught:
        choose(found, None)
    assert "inv rollback --to d1 --node blackwell" in caught.value.hint
    assert choose(found, "d1")["id"] == "d1"
    with pytest.raises(RefusedError, match="the last deploy, d9, is damaged") as caught:
        choose(changes.node(deploys(), damaged), None)
    assert "--to" not in caught.value.hint


def test_another_servers_deploy_is_undone_by_its_name_only() -> None:
    found = changes.node(deploys("other"))
    with pytest.raises(RefusedError, match=f"no deploy is in place .* for server '{OURS}'") as caught:
        choose(found, None)
    assert caught.value.hint == "inv rollback --to d0 --node blackwell undoes the one for server 'other'"
    assert choose(found, "d0")["id"] == "d0"
