"""Files that nobody should trust: bounded work, nothing of this machine in reach, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote import wiring
from remote.wiring import modules
from remote.wiring.values import Stub
from tests.wiring.support import CONTRACT, IDS, MODEL, compute, edited, patched, pristine, run_here, told

HOOK = "        if not self.pp_group.is_last_rank:\n            return\n\n        if layer_ids is None:\n"


def _in_the_hook(code: str) -> wiring.Wiring:
    lines = "".join(f"        {line}\n" for line in code.splitlines())
    return compute(edited(pristine("0.5.9"), MODEL, HOOK, lines + HOOK), "0.5.9", [2, 30, 58])


ENDLESS = {
    "while True": "while True:\n    pass",
    "while with a counter": "n = 0\nwhile n >= 0:\n    n += 1",
    "a list that grows while it is read": "items = [1]\nfor item in items:\n    items.append(item)",
    "recursion": "f(self, layer_ids)",
    "recursion by a lambda": "again = lambda f: f(f)\nagain(again)",
    "nested loops": "for a in range(9999):\n    for b in range(9999):\n        a + b",
    "a long comprehension": "[a + b + c for a in range(9999) for b in range(9999) for c in range(9999)]",
    "a huge list": "x = [0] * 10**9",
    "a huge text": "x = 'x' * 10**9",
    "a huge number": "x = 10 ** 10 ** 10",
    "a huge shift": "x = 1 << 10**9",
    "squares": "x = 3\nfor i in range(100):\n    x = x * x",
    "doubling a text": "x = 'x'\nfor i in range(100):\n    x = x + x",
    "doubling a list": "x = [0]\nfor i in range(100):\n    x.extend(x)",
    "a list of itself": "x = [0]\nfor i in range(100):\n    x = [*x, *x]",
    "a wide format": "x = '%999999999d' % 1",
    "a replacement": "x = ('x' * 9999).replace('x', 'y' * 9999)",
    "a join": "x = ('x' * 9999).join(['y' * 9999] * 9999)",
    "recursion in the function": "return f(self, [*layer_ids, 1])",
    "nested tuples, hashed": "x = 1\nfor i in range(60):\n    x = (x, x)\n{x: 1}",
    "nested lists, compared": (
        "x = y = 1\nfor i in range(60):\n    x, y = [x, x], [y, y]\nif x == y:\n    pass"
    ),
    "nested lists, shown": "x = 1\nfor i in range(60):\n    x = [x] * 8\nraise ValueError(f'{x}')",
    "nested lists, sorted": ("x = y = 1\nfor i in range(60):\n    x, y = [x, x], [y, y]\nsorted([x, y, x])"),
    "a huge range": "x = list(range(10**12))",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_work_and_memory_are_bounded(name: str) -> None:
    code = "".join(f"    {line}\n" for line in ENDLESS[name].splitlines())
    result = run_here(f"def f(self, layer_ids):\n{code}    return 'done'\n", "f", Stub("self"), [1])
    assert isinstance(result, str)
    assert result.startswith(("unfollowed: ", "ValueError: [[")), result


def test_an_endless_hook_is_an_unknown_wiring() -> None:
    found = _in_the_hook(ENDLESS["while True"])
    assert found.eager.unknown is not None
    assert "steps" in found.eager.unknown


ATTEMPTS = [
    "open(PATH, 'w').write('x')",
    "__import__('pathlib').Path(PATH).write_text('x')",
    "__builtins__['open'](PATH, 'w')",
    "eval(\"open(PATH, 'w')\")",
    "exec(\"open(PATH, 'w')\")",
    "().__class__.__bases__[0].__subclasses__()[0](PATH)",
    "print.__globals__['open'](PATH, 'w')",
    "getattr(getattr(print, '__self__'), 'open')(PATH, 'w')",
    "self.__class__.__init__.__globals__['open'](PATH, 'w')",
    "'{0.__class__.__init__.__globals__}'.format(self)",
    "import os\nos.system('touch ' + PATH)",
    "import subprocess\nsubprocess.run(['touch', PATH])",
    "from pathlib import Path\nPath(PATH).touch()",
    "str.format.__func__",
    "[c for c in ''.__class__.__mro__[1].__subclasses__()][0]",
]


@pytest.mark.parametrize("code", ATTEMPTS)
def test_nothing_of_this_machine_is_reached(code: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    lines = "".join(f"    {line}\n" for line in code.replace("PATH", repr(str(mark))).splitlines())
    source = f"class A:\n    def __init__(self):\n        pass\n\n\ndef f(n):\n    self = A()\n{lines}"
    run_here(source, "f", 1)
    assert not mark.exists()


TEXTS = {
    "empty": "",
    "binary": "\x00\x01",
    "not Python": "this is not Python",
    "deep brackets": "x = " + "(" * 5000 + ")" * 5000,
    "a deep sum": "x = " + " + ".join(["1"] * 50_000),
    "deep attributes": "x = a" + ".b" * 50_000,
    "another class": "class DeepseekV2Model:\n    pass\n",
    "a class that is its own base": "class DeepseekV3ForCausalLM(DeepseekV3ForCausalLM):\n    pass\n",
    "bases in a circle": (
        "class A(DeepseekV3ForCausalLM):\n    pass\nclass DeepseekV3ForCausalLM(A):\n    pass\n"
    ),
    "an import of itself": "from sglang.srt.models.deepseek_v2 import DeepseekV3ForCausalLM\n",
    "a name from itself": "DeepseekV3ForCausalLM = DeepseekV3ForCausalLM\n",
    "a function": "def DeepseekV3ForCausalLM(config):\n    return config\n",
    "async": "class DeepseekV3ForCausalLM:\n    async def forward(self):\n        await x\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_source_that_is_something_else(name: str) -> None:
    found = compute({**pristine("0.5.9"), MODEL: TEXTS[name]}, "0.5.9", [2, 30, 58])
    for mode in wiring.MODES:
        assert wiring.compare(found.mode(mode), CONTRACT) in ("unknown", "crash")


def test_a_file_that_does_not_parse_is_named() -> None:
    found = compute({**pristine("0.5.9"), MODEL: "x = (\n"}, "0.5.9", [2, 30, 58])
    assert found.eager.unknown is not None
    assert found.eager.unknown.startswith(f"{MODEL} does not parse: line 1")


def test_an_unknown_escape_is_no_obstacle() -> None:
    sources = pristine("0.5.9")
    found = compute({**sources, MODEL: f"{sources[MODEL]}\nPATTERN = '\\d'\n"}, "0.5.9", [2, 30, 58])
    assert told(found.eager) == "in:3, in:31, in:59"


def _region(text: str) -> tuple[int, int]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("class DeepseekV2Model("))
    return start, len(lines)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_source_gives_an_answer(data: st.DataObject) -> None:
    """Lines of the patched model are deleted, doubled, swapped or moved to the left."""
    sources = patched("0.5.9", "eagle3-three-edits")
    lines = sources[MODEL].splitlines()
    start, end = _region(sources[MODEL])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(start, end - 4))
        kind = data.draw(st.sampled_from(["delete", "double", "swap", "dedent"]))
        if kind == "delete":
            lines[at] = ""
        elif kind == "double":
            lines[at] = f"{lines[at]}\n{lines[at]}"
        elif kind == "swap":
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        else:
            lines[at] = lines[at][4:]
    modules.parse.cache_clear()
    found = compute({**sources, MODEL: "\n".join(lines)}, "0.5.9", IDS)
    for mode in wiring.MODES:
        result = found.mode(mode)
        assert not (result.unknown or "").startswith("not followed at"), result.unknown
        assert (result.unknown is None) == (result.layers is not None or result.error is not None)
