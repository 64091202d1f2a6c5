"""Edits of Python source: found by syntax tree, exactly once, and everything else byte for byte."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from remote.edits import Edit, Inspection, inspect, why_not_python

INIT = Edit("flag", "Model.__init__", "after", "self.layers = []", "self.first = False")
PARSE = Edit(
    "parse",
    "Model.hook",
    "replace",
    "self.layers = [i + 1 for i in ids]",
    "self.first = -1 in ids\nself.layers = [i + 1 for i in ids if i != -1]\n",
)
CAPTURE = Edit(
    "capture",
    "Model.forward",
    "after",
    "out = []",
    "if self.first:\n    # the embedding\n    out.append(x.clone())\n",
)
LOG = Edit("log", "Model.hook", "end", "", "# say it\nprint(self.layers)\n")
DEFAULT = Edit("default", "Model", "start", "", "first = False")
CAPTURED = "        if self.first:\n            # the embedding\n            out.append(x.clone())\n"
EDITS = [INIT, PARSE, CAPTURE, LOG, DEFAULT]

SOURCE = textwrap.dedent('''\
    """A model."""
    import os  # kept


    class Other:
        def __init__(self):
            self.x = []


    class Model(Other):
        """Docstring."""

        # a comment before the first statement
        size = 3

        @property
        def depth(self):
            return 61

        def __init__(self):
            self.layers = []  # filled later
            self.x   =  1

        def forward(self, x):
            out = []
            for i in range(3):
                if i in self.layers:
                    out.append(x)
            return out

        def hook(self, ids=None):
            if ids is None:
                self.layers = [2, self.depth // 2]
            else:
                # one more
                self.layers = [i + 1 for i in ids]  # here
''')


def states(content: str | bytes, edits: list[Edit] = EDITS, introduces: tuple[str, ...] = ()) -> list[str]:
    return [e.state for e in look(content, edits, introduces).edits]


def look(content: str | bytes, edits: list[Edit] = EDITS, introduces: tuple[str, ...] = ()) -> Inspection:
    return inspect(content if isinstance(content, bytes) else content.encode(), edits, introduces)


def changed(content: str | bytes, edits: list[Edit] = EDITS) -> str:
    new = look(content, edits).new
    assert new is not None
    return new.decode()


def misfit(content: str | bytes, edit: Edit) -> tuple[str, int | None]:
    """What one edit found, which must be a misfit, and the line."""
    result = look(content, [edit])
    assert result.edits[0].state == "misfit"
    assert result.new is None
    return result.edits[0].found, result.edits[0].line


def test_the_edits_are_made_and_nothing_else() -> None:
    expected = (
        SOURCE.replace(
            "        self.layers = []  # filled later\n",
            "        self.layers = []  # filled later\n        self.first = False\n",
        )
        .replace(
            "            self.layers = [i + 1 for i in ids]  # here\n",
            "            self.first = -1 in ids\n"
            "            self.layers = [i + 1 for i in ids if i != -1]  # here\n"
            "        # say it\n"
            "        print(self.layers)\n",
        )
        .replace(
            "        out = []\n",
            "        out = []\n" + CAPTURED,
        )
        .replace('    """Docstring."""\n', '    """Docstring."""\n    first = False\n')
    )
    assert changed(SOURCE) == expected


def test_a_second_run_changes_nothing_and_the_edits_come_off_again() -> None:
    once = changed(SOURCE)
    again = look(once)
    assert [e.state for e in again.edits] == ["done"] * 5
    assert again.new == once.encode()
    assert again.bare == SOURCE.encode()


@pytest.mark.parametrize("count", range(1, 5))
def test_a_part_that_is_done_is_completed(count: int) -> None:
    part = changed(SOURCE, EDITS[:count])
    assert states(part) == ["done"] * count + ["todo"] * (5 - count)
    assert changed(part) == changed(SOURCE)
    assert look(part).bare == SOURCE.encode()


def test_edits_made_by_hand_in_another_spelling_are_done() -> None:
    by_hand = SOURCE.replace(
        "        out = []\n",
        "        out = []\n"
        "        if (self.first):   # mine\n"
        "            out.append(x\n"
        "                .clone())\n",
    )
    result = look(by_hand, [CAPTURE])
    assert result.edits[0].state == "done"
    assert result.new == by_hand.encode()
    assert result.bare == SOURCE.encode()


def test_a_replacement_made_by_hand_comes_off_too() -> None:
    by_hand = SOURCE.replace(
        "            self.layers = [i + 1 for i in ids]  # here\n",
        "            self.first = (-1 in ids)\n"
        "            self.layers = [i+1 for i in ids if i != -1]  # here\n",
    )
    assert states(by_hand, [PARSE]) == ["done"]
    assert look(by_hand, [PARSE]).bare == SOURCE.encode()


def test_other_changes_in_the_file_stay_in_both_directions() -> None:
    local = SOURCE.replace("self.x   =  1", "self.x = 2  # ours").replace("range(3)", "range(4)")
    once = changed(local)
    assert "self.x = 2  # ours" in once
    assert look(once).bare == local.encode()


@pytest.mark.parametrize(
    ("before", "after", "edit", "message"),
    [
        ("class Model(Other)", "class Renamed(Other)", INIT, "there is no Model"),
        (
            "def __init__(self):\n        self.layers",
            "def setup(self):\n        self.layers",
            INIT,
            "no __init__ in Model",
        ),
        (
            "self.layers = []  # filled later",
            "self.layers = list()",
            INIT,
            "nearest, line 21: self.layers = list()",
        ),
        ("self.layers = []  # filled later", "pass", INIT, "nearest, line 22: self.x = 1"),
        ("self.x   =  1", "self.layers = []", INIT, "anchor found 2 times in Model.__init__: lines 21, 22"),
        ("self.x   =  1", "pass\n        self.first = False", INIT, "at another place, on line 23"),
        ("self.x = []", "self.first = False", INIT, "already, at another place, on line 7"),
        ("ids=None):\n", "ids=None):\n        return\n", PARSE, "never be reached: line 32"),
        (
            "self.layers = []  # filled",
            "self.y = 1; self.layers = []  # filled",
            INIT,
            "more than the one statement",
        ),
        (
            "self.layers = []  # filled",
            "self.layers = []; self.y = 1  # filled",
            INIT,
            "more than the one statement",
        ),
        ("self.layers = []  # filled later", "if os: self.layers = []", INIT, "more than the one statement"),
        (
            "self.layers = []  # filled later",
            "self.y = 1; \\\n        self.layers = []",
            INIT,
            "more than the one",
        ),
        (
            "[i + 1 for i in ids]  #",
            "[i + 1  # one\n                for i in ids]  #",
            PARSE,
            "a comment inside",
        ),
        ("class Model(Other)", "class Model: pass\n\n\nclass Model(Other)", INIT, "Model is defined 2 times"),
        ("    size = 3\n", "    size = 3\n    hook = None\n", PARSE, "hook in Model is defined 2 times"),
        ("    size = 3\n", "    from os import getcwd as hook\n", PARSE, "hook in Model is defined 2 times"),
        ('"""A model."""\n', '"""A model."""\nhook = Model = None\n', PARSE, "Model is defined 2 times"),
        ("  # here\n", "  # here\n\n\nModel.hook = print\n", PARSE, "line 39 replaces Model.hook"),
        ("out = []\n", "out = [\n", CAPTURE, "does not parse"),
    ],
)
def test_what_does_not_fit_is_a_misfit_that_says_why(
    before: str, after: str, edit: Edit, message: str
) -> None:
    assert before in SOURCE
    found, line = misfit(SOURCE.replace(before, after, 1), edit)
    assert message in found
    assert line is None or 0 < line <= SOURCE.count("\n") + 4


def test_a_misfit_shows_what_was_expected() -> None:
    result = look(SOURCE.replace("self.layers = []  # filled later", "self.layers = list()"), [INIT])
    assert result.edits[0].line == 21
    assert "-        self.layers = list()" in result.edits[0].diff
    assert "+        self.layers = []" in result.edits[0].diff
    assert "+        self.first = False" in result.edits[0].diff


def test_an_edit_that_is_half_there_is_a_misfit() -> None:
    half = SOURCE.replace("            # one more\n", "            self.first = -1 in ids\n")
    assert "already, at another place, on line 35" in misfit(half, PARSE)[0]


def test_an_edit_that_is_there_twice_is_a_misfit() -> None:
    """Case 077: to capture twice gives six states instead of three."""
    once = changed(SOURCE, [CAPTURE])
    found, _ = misfit(once.replace(CAPTURED, CAPTURED * 2), CAPTURE)
    assert "also on line 29" in found


def test_an_edit_that_is_moved_is_a_misfit() -> None:
    """To capture last instead of first is a silent fault: accept length 1.3 instead of 4.2."""
    moved = SOURCE.replace("        return out\n", CAPTURED + "        return out\n")
    assert "at another place, on line 29" in misfit(moved, CAPTURE)[0]


@pytest.mark.parametrize(
    "later",
    [
        "self.first = False",
        "self.first += 1",
        "del self.first",
        "self.y, self.first = 1, 2",
        "if ids:\n            self.first = None",
        "for self.first in ids:\n            pass",
        "with open(ids) as self.first:\n            pass",
        "self.first: bool = False",
    ],
)
def test_a_done_edit_that_a_later_line_undoes_is_a_misfit(later: str) -> None:
    """Case 081: the code is there and yet does not take effect."""
    undone = changed(SOURCE, [PARSE]) + f"        {later}\n"
    found, line = misfit(undone, PARSE)
    assert "undoes the new code on line 36" in found
    assert line is not None
    assert line >= 38


def test_a_later_line_on_another_path_undoes_nothing() -> None:
    done = changed(SOURCE, [PARSE]).replace("[2, self.depth // 2]", "[2]\n            self.first = None")
    assert states(done, [PARSE]) == ["done"]


def test_a_done_edit_behind_a_return_is_a_misfit() -> None:
    dead = changed(SOURCE, [PARSE]).replace("ids=None):\n", "ids=None):\n        raise ValueError\n")
    assert "never reached: line 32" in misfit(dead, PARSE)[0]


def test_a_method_of_the_same_name_is_a_misfit() -> None:
    """Case 077: a second definition silently overrides the first."""
    edit = Edit("method", "Model", "end", "", "def size(self):\n    return 1\n")
    assert "size is defined there differently, on line 14" in misfit(SOURCE, edit)[0]


def test_the_code_may_stand_in_other_functions_if_the_edit_says_so() -> None:
    other = SOURCE.replace("self.x = []", "self.first = False")
    assert states(other, [replace(INIT, elsewhere=True)]) == ["todo"]
    apart = other.replace("self.x   =  1", "pass\n        self.first = False")
    assert states(apart, [replace(INIT, elsewhere=True)]) == ["misfit"]


def test_a_name_that_only_the_edits_bring_in_betrays_somebody_elses_version() -> None:
    other = SOURCE.replace(
        "        out = []\n", "        out = []\n        if self.first is True:\n            out += [x]\n"
    )
    assert states(other, [INIT, CAPTURE]) == ["todo", "todo"]
    result = look(other, [INIT, CAPTURE], ("first",))
    assert [e.state for e in result.edits] == ["misfit", "todo"]
    assert (
        "line 26 uses first in a way that is not this fix's: if self.first is True:" in result.edits[0].found
    )
    assert states(changed(SOURCE, [INIT, CAPTURE]), [INIT, CAPTURE], ("first",)) == ["done", "done"]
    assert states(SOURCE.replace("# one more", "# first"), [INIT, CAPTURE], ("first",)) == ["todo", "todo"]
    assert states(SOURCE.replace("'", "").replace("os  #", "first  #"), [INIT], ("first",)) == ["misfit"]
    assert states(SOURCE.replace("size = 3", "size = 'first'"), [INIT], ("first",)) == ["misfit"]


def test_edits_that_write_at_the_same_place_are_refused() -> None:
    result = look(SOURCE, [INIT, replace(INIT, id="again", new="self.second = 1")])
    assert result.problem is not None
    assert "same place" in result.problem
    assert [e.state for e in result.edits] == ["misfit", "misfit"]


def test_a_result_that_does_not_parse_is_refused() -> None:
    result = look(
        "def f():\n    a = 1\n",
        [Edit("x", "f", "before", "a = 1", "b = 1\nfrom __future__ import nothing\n")],
    )
    assert result.new is not None  # the tree is fine; only the compiler would complain
    result = look("def f():\n\ta = 1\n", [Edit("x", "f", "replace", "a = 1", 'b = """\n  """')])
    assert result.new == b'def f():\n\tb = """\n  """\n'
    assert why_not_python(b"def f(:\n") == "the file does not parse: invalid syntax (line 1)"
    assert why_not_python(b"x = 1\n") is None


def test_a_module_level_edit() -> None:
    edit = Edit("import", "", "after", "import os", "import sys")
    assert changed(SOURCE, [edit]) == SOURCE.replace("import os  # kept\n", "import os  # kept\nimport sys\n")
    last = Edit("last", "", "end", "", "Entry = Model")
    assert changed(SOURCE, [last]) == SOURCE + "Entry = Model\n"
    start = Edit("first", "", "start", "", "import sys")
    assert changed(SOURCE, [start]).startswith('"""A model."""\nimport sys\nimport os')


def test_code_that_the_compiler_warns_of_is_read_all_the_same() -> None:
    odd = SOURCE.replace("size = 3", "size = '\\d' is 3")
    assert states(odd) == ["todo"] * 5


def test_code_that_is_nested_too_deeply_is_refused() -> None:
    deep = " + ".join(["a"] * 900)
    edit = Edit("deep", "Model.__init__", "after", f"self.layers = {deep}", "pass")
    found, _ = misfit(SOURCE.replace("self.layers = []", f"self.layers = {deep}"), edit)
    assert found == "the code is nested too deeply to be compared"
