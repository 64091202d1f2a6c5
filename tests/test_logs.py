"""`inv logs`: what the lines that the node chooses tell is what the whole log tells."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from remote import logs
from remote.errors import UsageError
from remote.logs import Asked
from remote.redact import KnownSecrets
from remote.render import logs as render
from remote.render.logs import show
from remote.session import Session
from remote.sglang.boots import boot_json
from tests.pictures import NODE
from tests.sglang import data
from tests.sglang.data import read_log

READY = "[2026-11-29 10:00:05] The server is fired up and ready to roll!\n"
CASES = ["012", "021", "026", "027", "029", "031", "032", "034", "041", "042", "044", "047", "051"]


def record(port: int = 8000) -> str:
    return f"[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m', port={port}, tp_size=1)\n"


def written(directory: Path, text: str) -> Path:
    path = directory / "server.log"
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", data.logs())
def test_a_real_log(tmp_path: Path, name: str) -> None:
    text = "a line before\n" * 3 + data.capture(name)
    (boot,) = logs.of_file(written(tmp_path, text), Asked()).to_json()["boots"]
    assert boot == boot_json(read_log(text)[0])


@pytest.mark.parametrize("by", data.RELAYS)
@pytest.mark.parametrize("name", data.logs())
def test_a_real_log_that_was_handed_on(tmp_path: Path, name: str, by: str) -> None:
    text = data.handed_on(data.capture(name), by)
    (boot,) = logs.of_file(written(tmp_path, text), Asked()).to_json()["boots"]
    assert boot == boot_json(read_log(text)[0])


@pytest.mark.parametrize("by", data.RELAYS)
def test_a_record_that_a_relay_cut_is_read_whole(tmp_path: Path, by: str) -> None:
    """At a bracket of it, as it may happen."""
    for size in (16_384, 40_000):
        head = "[2026-11-29 10:00:00] server_args={'port': 8000, 'x': ['"
        filler = "v" * (16_384 - len(head) - 5) + "', {}"
        text = f"{head}{filler}, '{'w' * (size - 16_384)}'], 'tp_size': 8}}\n" + READY
        (boot,) = logs.of_file(written(tmp_path, data.handed_on(text, by)), Asked()).boots
        assert (boot.args_record, boot.args.get("tp_size"), boot.state) == ("complete", 8, "ready"), size


@pytest.mark.parametrize("number", CASES)
def test_a_case(tmp_path: Path, number: str) -> None:
    text = data.case(number)
    read = logs.of_file(written(tmp_path, text), Asked()).to_json()["boots"]
    assert read == [boot_json(boot) for boot in read_log(text)]


def test_the_last_file_of_a_traceback_is_sent_whatever_its_name(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/s/sglang/srt/server_args.py", line 700, in __post_init__\n    self._handle()\n'
        '  File "/s/transformers/configuration_utils.py", line 658, in get\n    load(path)\n'
        "PermissionError: [Errno 13] Permission denied: '/m/config.json'\n"
    )
    (boot,) = logs.of_file(written(tmp_path, text), Asked()).boots
    assert boot.failure is not None
    assert (boot.failure.code, boot.failure.line) == ("unknown", 6)


@pytest.mark.parametrize("width", [60, 80])
def test_a_wrapped_record_is_read_whole(tmp_path: Path, width: int) -> None:
    whole = record()[:-1]
    wrapped = "\n".join(whole[at : at + width] for at in range(0, len(whole), width))
    found = logs.of_file(written(tmp_path, f"noise\n{wrapped}\nnoise\n{READY}"), Asked())
    (boot,) = found.boots
    assert (boot.args_record, boot.args["port"], boot.state) == ("complete", 8000, "ready")


def test_a_cut_record_is_truncated(tmp_path: Path) -> None:
    text = f"{record()[:70]}\n[2026-11-29 10:00:01] noise\nnoise\n{READY}"
    (boot,) = logs.of_file(written(tmp_path, text), Asked()).boots
    assert (boot.args_record, boot.state) == ("truncated", "ready")


def test_each_of_many_boots_has_its_decode_lines(tmp_path: Path) -> None:
    """Of 4,000 decode lines each, of which the first and the last are read."""
    busy = "".join(
        f"[2026-11-29 10:01:{n % 60:02d}] Decode batch, #running-req: 1, accept len: 3.00, "
        f"gen throughput (token/s): 50.00, #queue-req: 0\n"
        for n in range(4000)
    )
    text = "".join(record(port) + READY + busy for port in (1, 2, 3))
    found = logs.of_file(written(tmp_path, text), Asked())
    assert [boot.args["port"] for boot in found.boots] == [1, 2, 3]
    for boot in found.boots:
        assert boot.decode is not None
        assert (boot.decode.accept_len, boot.decode.gen_tok_s) == (3.0, 50.0)


@pytest.mark.parametrize("text", ["hello\n", "hello", "\n", "[10:00:00] a\n" + "[10:00:01] b\n" * 9999])
def test_a_log_that_tells_nothing_is_one_boot(tmp_path: Path, text: str) -> None:
    found = logs.of_file(written(tmp_path, text), Asked()).to_json()["boots"]
    assert found == [boot_json(boot) for boot in read_log(text)]
    assert len(found) == 1
    assert logs.of_file(written(tmp_path, ""), Asked()).boots == ()


def test_a_boot_begins_with_its_first_line_whatever_that_is(tmp_path: Path) -> None:
    text = "[2026-11-29 09:59:59] noise\n" + READY
    (boot,) = logs.of_file(written(tmp_path, text), Asked()).boots
    assert (boot.started_at, boot.first_line) == ("2026-11-29 09:59:59", 1)


def test_of_a_crash_loop_the_newest_boots_are_shown_with_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(record(port) + "ValueError: x\n" for port in range(1, 181))
    found = logs.of_file(written(tmp_path, text), Asked())
    assert [boot.args["port"] for boot in found.boots] == [*range(81, 181)]
    assert found.to_json()["older_boots"] == 80
    show(found, errors=True, args=False)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("80 older boots")
    assert [line.split()[0] for line in out[2:102]] == [str(number) for number in range(81, 181)]


def test_a_server_that_accepts_nothing_is_shown_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 036: no error anywhere, and three decode lines with an accept length of 1."""
    for length, said in (("1.00", True), ("1.40", False)):
        lines = f"[2026-11-29 10:01:00] Decode batch, accept len: {length}, x\n" * 3
        found = logs.of_file(written(tmp_path, record() + READY + lines), Asked())
        render.show(found, errors=False, args=False)
        assert ("accepts nothing: inv runbook accept-length-low" in capsys.readouterr().out) is said


def test_grep_is_about_decode_lines_too(tmp_path: Path) -> None:
    lines = [f"[2026-11-29 10:01:00] Decode batch, accept len: {n}.00, x\n" for n in range(5)]
    text = record() + READY + "".join(lines)
    found = logs.of_file(written(tmp_path, text), Asked(grep=r"accept len: [34]"))
    assert found.lines == ((6, lines[3][:-1]), (7, lines[4][:-1]))


@pytest.mark.parametrize("grep", [None, "accept len"])
def test_no_lines_are_asked_for(tmp_path: Path, grep: str | None) -> None:
    path = written(
        tmp_path, record() + READY + "[2026-11-29 10:01:00] Decode batch, accept len: 3.00, x\n" * 9
    )
    found = logs.of_file(path, Asked(grep, lines=0))
    assert (found.lines, len(found.boots)) == ((), 1)
    assert len(logs.of_file(path, Asked(grep, lines=2)).lines) == 2
    with pytest.raises(UsageError, match="--lines -1"):
        logs.of_file(path, Asked(grep, lines=-1))


def test_no_line_shows_a_part_of_a_secret_that_was_wrapped(tmp_path: Path) -> None:
    key = "sup3rl0ngfirmsecretvalue0123456789"
    whole = record()[:-1].replace("port", f"api_key='{key}', port")
    for at in (whole.index("_key"), whole.index(key) + 10):
        text = f"noise\n{whole[:at]}\n{whole[at:]}\n{READY}"
        path = written(tmp_path, text)
        for asked in (Asked(), Asked(lines=2), Asked(grep="port="), Asked(grep="api")):
            shown = str(logs.of_file(path, asked).to_json())
            assert [key[n : n + 4] for n in range(30) if key[n : n + 4] in shown] == []


class Following:
    """What `logs.follow` needs of a session: the node's events, then an interruption."""

    node = NODE

    def __init__(self, *events: dict[str, Any], processes: dict[str, Any] | None = None) -> None:
        self.events, self.processes, self.secrets = events, processes or {}, KnownSecrets()

    def submit(self, op: str, params: dict[str, Any]) -> str:
        assert op == "observe"
        return " ".join(sorted(params["sections"]))

    def result(self, pending: str) -> dict[str, Any]:
        assert pending == "procs state"
        return self.processes

    def request(self, op: str, params: dict[str, Any], *, on_event: Any, **_: Any) -> None:
        assert (op, params["path"], params["follow"]) == ("tail", NODE.server.log, True)
        for event in self.events:
            on_event(event)
        raise KeyboardInterrupt


def test_a_log_that_is_followed_is_clean_and_shown_to_its_end() -> None:
    key = "sup3rl0ngfirmsecret"
    whole = record()[:-1].replace("port", f"api_key='{key}', port")
    at = whole.index("_key") + 2
    shown: list[str] = []
    events = ({"log": whole[:at] + "\n"}, {"log": whole[at:] + "\nnex"}, {"log": "", "restarted": "replaced"})
    session = cast("Session", Following(*events, {"log": f"new {key[:9]}"}, {"log": f"{key[9:]} end"}))
    with pytest.raises(KeyboardInterrupt):
        logs.follow(session, Asked(), shown.append)
    text = "".join(shown)
    assert text.endswith("port=8000, tp_size=1)\nnexnew *** end")
    assert key not in text.replace("\n", "")


def test_a_log_that_is_followed_does_not_show_what_a_colleague_set() -> None:
    entry = NODE.server.model_copy(update={"args": {"served-model-name": "${PLACE}"}})
    process = {"argv": ["python", "--served-model-name", "north-attic"], "env": None}
    session = Following({"log": "on north-attic\n"}, processes={"procs": {"processes": [process]}})
    session.node = replace(NODE, server=entry)
    shown: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        logs.follow(cast("Session", session), Asked(), shown.append)
    assert "".join(shown) == "on ***\n"


def test_lines_are_numbered_as_the_file_has_them(tmp_path: Path) -> None:
    """Line feeds alone end a line: a progress bar's redraws, a form feed or a Unicode separator do not."""
    found = logs.of_file(written(tmp_path, "a\rb\nc\x0cd\u2028e\n" + READY), Asked())
    assert found.lines == ((1, "a"), (1, "b"), (2, "c\x0cd\u2028e"), (3, READY[:-1]))


def test_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(record() + READY,))
    writer.start()
    found = logs.of_file(pipe, Asked())
    writer.join()
    assert (found.source, found.boots[0].state) == (str(pipe), "ready")


@pytest.mark.parametrize(("name", "why"), [("absent", "No such file"), (".", "Is a directory")])
def test_what_cannot_be_read(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        logs.of_file(tmp_path / name, Asked())
