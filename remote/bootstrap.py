"""How the helper's code gets onto the node and starts there.

One exec request: `[sudo -n --] PYTHON -B -u -c BOOTSTRAP LENGTH NONCE`, with LENGTH bytes of compressed
code first on its standard input. Nothing is installed and no login file is relied on.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paramiko

NODE_SOURCES = Path(__file__).resolve().parent / "node"
COMPRESSION = 5  # of 1 to 9: 9 takes six times as long and saves 2 %

# One line, no single quote, `!` or backslash: the same text for sh, csh and fish once it is quoted. Valid for
# Python 2 too, so that an old interpreter says so instead of reporting a syntax error. The working
# directory leaves the search path first: a stray json.py in the home directory is not ours to import.
BOOTSTRAP = (
    "import sys;sys.path[:]=[p for p in sys.path if p];"
    'sys.version_info<(3,8)and sys.exit("fixops: Python %d.%d is too old"%sys.version_info[:2]);'
    'import os,zlib;n=int(sys.argv[1]);b=b"";'
    'exec("while len(b)<n:b+=os.read(0,n-len(b))or sys.exit(9)");'
    "c,_,d=zlib.decompress(b).partition(bytes(1));exec(c);run(d,sys.argv[2])"
)


def node_sources() -> dict[str, str]:
    """The text of every module of remote/node, by its name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(NODE_SOURCES.glob("*.py"))}


def op_index(sources: dict[str, str]) -> dict[str, str]:
    """{operation: module}, read from the `OPS = {...}` of every module without importing any."""
    return {
        op: name
        for name, text in sources.items()
        for table in re.findall(r"^OPS\b[^=]*=\s*\{(.*?)\}", text, re.MULTILINE | re.DOTALL)
        for op in re.findall(r'"([\w.]+)":', table)
    }


def pack(sources: dict[str, str]) -> bytes:
    """The loader, a NUL byte and the other modules as JSON, compressed: what BOOTSTRAP expects."""
    modules = {name: text for name, text in sources.items() if name != "loader"}
    data = json.dumps({"modules": modules, "ops": op_index(modules)})
    return zlib.compress(sources["loader"].encode() + b"\0" + data.encode(), COMPRESSION)


@functools.cache
def payload() -> bytes:
    """The code of remote/node; the same for all nodes of a command."""
    return pack(node_sources())


def command(python: str, *, sudo: bool, length: int, nonce: str) -> str:
    """The command line for the login shell of the node, whichever that is."""
    words = [python, "-B", "-u", "-c", BOOTSTRAP, str(length), nonce]
    return shlex.join(["sudo", "-n", "--", *words] if sudo else words)


def start(channel: paramiko.Channel, command_line: str) -> None:
    """Channel.exec_command without waiting for the answer: a refusal closes the channel, which is noticed.

    That saves a round trip, because the code and the first requests can follow at once.
    """
    import paramiko
    from paramiko.common import cMSG_CHANNEL_REQUEST

    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exec")
    message.add_boolean(True)
    message.add_string(command_line)
    transport: Any = channel.get_transport()
    transport._send_user_message(message)
