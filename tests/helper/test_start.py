"""Starting the helper over real SSH servers: what is said of an interpreter or a sudo that does not do it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from remote.errors import ConnectError
from remote.helper import open_helper
from remote.practice.ssh_server import SshServer
from remote.ssh import Connection
from tests.helper.kit import trial_code


def tool(server: SshServer, name: str, text: str) -> Path:
    """A script that comes first on the PATH of the node."""
    path = server.identity_file.parent / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def failure(connection: Connection, python: str, **options: Any) -> ConnectError:
    with (
        open_helper(connection, python, node="blackwell", **options) as helper,
        pytest.raises(ConnectError) as caught,
    ):
        helper.request("echo", {}, timeout_s=60)
    assert caught.value.exit_code == 3
    assert caught.value.node == "blackwell"
    assert "already printed" not in caught.value.message
    return caught.value


def test_an_interpreter_that_is_not_there(connection: Connection) -> None:
    """Field case 087: say which one, and that login files do not count."""
    error = failure(connection, "/opt/none/bin/python")
    assert error.message == "there is no /opt/none/bin/python on blackwell"
    assert "absolute path" in error.hint
    assert "login files are not read" in error.hint


def test_an_interpreter_that_cannot_be_executed(connection: Connection, tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("no program\n")
    file.chmod(0o644)
    assert "cannot be executed" in failure(connection, str(file)).message


def test_an_interpreter_that_is_too_old(connection: Connection, server: SshServer) -> None:
    """A real interpreter that is told that it is 3.7, and then runs the very bootstrap."""
    code = "import sys;sys.version_info=(3,7,16);sys.argv=sys.argv[1:];exec(sys.argv[0])"
    old = tool(
        server, "python3.7", f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(code)} "$4" "$5" "$6"\n'
    )
    error = failure(connection, str(old))
    assert error.message == f"{old} on blackwell is Python 3.7; at least 3.8 is needed"


def test_an_interpreter_that_fails_is_told_with_what_it_printed(
    connection: Connection, server: SshServer
) -> None:
    """Field case 097: the status and both streams, not `already printed`; and no secret among them."""
    broken = tool(
        server,
        "broken-python",
        "#!/bin/sh\necho 'libpython3.11.so.1.0: cannot open shared object --api-key sk-verysecret'\n"
        "echo 'seen on stderr' >&2\nexit 5\n",
    )
    error = failure(connection, str(broken))
    assert "ended with status 5 before it answered" in error.message
    assert "libpython3.11.so.1.0" in error.message
    assert "seen on stderr" in "\n".join(error.data["output"])
    assert "sk-verysecret" not in json.dumps([error.message, error.data])


def test_an_interpreter_that_never_answers(connection: Connection, server: SshServer) -> None:
    mute = tool(server, "mute-python", "#!/bin/sh\necho waiting for you\nexec cat >/dev/null\n")
    error = failure(connection, str(mute), heartbeat_s=0.1, start_timeout_s=1.0)
    assert "did not answer within 1 s" in error.message
    assert "waiting for you" in error.message


# sudo


def test_the_helper_runs_under_sudo(connection: Connection, server: SshServer) -> None:
    tool(
        server,
        "sudo",
        '#!/bin/sh\n[ "$1" = -n ] && [ "$2" = -- ] || exit 9\nshift 2\nFIXOPS_SUDO=yes exec "$@"\n',
    )
    with open_helper(connection, sys.executable, sudo=True, node="blackwell", code=trial_code()) as helper:
        assert helper.request("echo", {"as": "root"}, timeout_s=60) == {"as": "root"}
        environment = Path(f"/proc/{helper.hello['pid']}/environ").read_bytes()
        assert b"FIXOPS_SUDO=yes" in environment


@pytest.mark.parametrize(
    ("says", "status", "expected"),
    [
        ("sudo: a password is required", 1, "sudo on blackwell refuses: sudo: a password is required"),
        ("ops is not in the sudoers file.", 1, "sudo on blackwell refuses: ops is not in the sudoers file."),
        (
            "sudo: sorry, you must have a tty to run sudo",
            1,
            "sudo on blackwell refuses: sudo: sorry, you must",
        ),
        ("sudo: /opt/x/python: command not found", 1, "there is no /opt/x/python on blackwell"),
    ],
)
def test_what_sudo_says_is_told(
    connection: Connection, server: SshServer, says: str, status: int, expected: str
) -> None:
    tool(server, "sudo", f"#!/bin/sh\necho {shlex.quote(says)} >&2\nexit {status}\n")
    assert failure(connection, "/opt/x/python", sudo=True).message.startswith(expected)
