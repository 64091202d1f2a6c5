"""Does the server run with the arguments that the inventory asks for?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import Check, Evidence, failed, passed, unknown
from ..intent import wanted_args
from ..inventory import command
from ..picture import Picture, outcome
from ..running import not_its_own, process_facts, started_as_meant
from ..sglang.adjustments import from_argv, same
from ..sglang.args import redact_value
from ..sglang.metrics import INFO_NAMES
from ..sglang.redact import is_secret


def effective(picture: Picture) -> Check:
    """Each argument of the inventory has its value in the server that runs, and it was given no other.

    Asked from the server itself (/server_info, /get_server_info), else read from this boot's
    `server_args=` record. A value that differs fails; one that neither tells is unknown. What a server was
    asked to choose by itself (`auto`) is as wanted, whatever it has chosen.
    """
    id, expected = "args.effective", "the server's arguments are the inventory's"
    wanted = wanted_args(picture.node.server)
    found, source = _told(picture)
    as_meant = started_as_meant(picture)
    if found is None:
        return unknown(
            id,
            expected,
            "the server does not answer, and the log holds no whole record of its arguments",
            *_untold(picture),
            remedy=f"inv logs --args --node {picture.node.name}",
        )
    wrong: list[str] = []
    missing: list[str] = []
    for name, value in wanted.items():
        if value is None:
            continue
        if name not in found:
            # A flag that is absent is off; any other argument that is absent tells nothing.
            (wrong if value is True else missing).append(name)
        elif not (_equal(name, value, found[name]) or (as_meant and value == "auto")):
            wrong.append(name)
    if wrong:
        evidence = [
            Evidence(
                source, f"{n} = {redact_value(n, found.get(n))!r}, wanted {redact_value(n, wanted[n])!r}"
            )
            for n in wrong
        ]
        remedy = f"inv restart --node {picture.node.name}"
        if as_meant:
            remedy = f"it was started so, and SGLang changed it: mend args of '{picture.node.server_name}'"
        return failed(id, expected, evidence[0].text, *evidence, remedy=remedy)
    more = ", ".join(f"--{name.replace('_', '-')}" for name in _given_besides(picture))
    if more:
        node = picture.node
        return failed(
            id,
            expected,
            f"started with {more}, which the inventory does not have",
            Evidence(f"/proc/{process_facts(picture)['pid']}/cmdline", more),
            remedy=f"inv restart --node {node.name}, or add it to args of '{node.server_name}'",
        )
    if missing:
        names = ", ".join(missing)
        return unknown(
            id,
            expected,
            f"not told: {names}",
            Evidence(source, f"no {names}"),
            remedy=f"inv logs --args --node {picture.node.name}",
        )
    return passed(id, expected, f"{len(wanted)} arguments as wanted", Evidence(source, _short(found, wanted)))


def _given_besides(picture: Picture) -> list[str]:
    """The options on the running server's command line that are neither among the inventory's arguments nor
    in its command: somebody started it by hand, or the inventory had them then."""
    given = from_argv(process_facts(picture).get("argv") or [])
    ours = {*from_argv(command(picture.node)), *wanted_args(picture.node.server)}
    return [name for name in given if name not in ours]


@dataclass(frozen=True)
class Arguments:
    """The server's arguments by SGLang's names, and where they were read. `values` None: nobody tells."""

    values: Mapping[str, Any] | None
    source: str

    def get(self, name: str) -> Any:
        return None if self.values is None else self.values.get(name)

    def tell(self, name: str) -> bool:
        return self.values is not None and name in self.values


def running(picture: Picture) -> bool | None:
    """Whether a server of ours runs; None when the processes could not be read."""
    if picture.ownership is None:
        return None
    return picture.ownership.server is not None and picture.ownership.server.launcher is not None


def arguments(picture: Picture) -> Arguments:
    """What the server runs with; where none runs, what the next one would be started with."""
    if running(picture) is False:
        # SGLang's own defaults (server_args.py, 0.5.5 to 0.5.23) for the switches that are asked about here.
        off = (
            *("disable_cuda_graph", "enable_torch_compile"),
            *("enable_two_batch_overlap", "enable_attn_tp_input_scattered"),
        )
        defaults = {"speculative_algorithm": None, **dict.fromkeys(off, False)}
        wanted = {**defaults, **wanted_args(picture.node.server)}
        return Arguments(wanted, "inventory (no server runs)")
    values, source = _told(picture)
    if values is not None:
        return Arguments(values, source)
    return Arguments(None, "the server does not tell its arguments, nor does the log")


def _told(picture: Picture) -> tuple[Mapping[str, Any] | None, str]:
    """The arguments that the server runs with, and where they are told: by itself, else in its log.

    The log of a server that is gone, or of another one, tells nothing of the one that runs.
    """
    if picture.effective is not None:
        return picture.effective, "/server_info"
    boot = picture.boot
    if (
        boot is not None
        and boot.args is not None
        and boot.args_record == "complete"
        and running(picture)
        and not_its_own(picture) is None
    ):
        return boot.args, f"{picture.node.server.log}: server_args record"
    return None, ""


def _untold(picture: Picture) -> list[Evidence]:
    """What the server answered when it was asked, and what its log has in place of the record."""
    found = []
    for name in INFO_NAMES:
        reply = (picture.facts.get("http") or {}).get(name)
        if reply is not None:
            found.append(Evidence(f"GET :{picture.node.server.port}/{name}", outcome(reply)))
    record = picture.boot.args_record if picture.boot else "absent"
    other = not_its_own(picture) if running(picture) else None
    text = (
        "the record is of a boot whose server is gone" if record == "complete" else f"the record is {record}"
    )
    return [*found, other or Evidence(f"{picture.node.server.log}: server_args record", text)]


def _equal(name: str, wanted: Any, found: Any) -> bool:
    if is_secret(name) or "${" in str(wanted):
        # Its value is shown nowhere, not even to be compared: the log's is masked, the inventory's a name.
        return found not in (None, "")
    return same(name, wanted, found)


def _short(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    speculative = [name for name in wanted if name.startswith("speculative_num") or name == "tp_size"]
    return ", ".join(f"{name}={found[name]}" for name in speculative if name in found) or "as wanted"
