from pathlib import Path

import pytest

from tests.limits import FOLDERS, main, python_files, violations_in


def messages(source: str, name: str = "noun.py") -> list[str]:
    """The violations of one module, as they are printed."""
    return [str(violation) for violation in violations_in(Path(name), source)]


def function(lines: int, head: str = "def wide():") -> str:
    """A function with this many lines of code, its head among them."""
    return "\n".join([head, *["    x = 1"] * (lines - 1)])


def test_a_module_has_350_lines_at_most() -> None:
    """The line that is one too many is counted, blank or not."""
    assert messages("\n" * 350) == []
    assert messages("\n" * 351) == ["noun.py:1: module has 351 lines, over the limit of 350"]


def test_a_function_has_40_lines_of_code_at_most() -> None:
    """Docstring and blank lines are free, comments are not."""
    documented = function(40).replace("wide():", 'wide():\n    """One.\n\n    Two.\n    """\n\n')
    assert messages(function(40)) == []
    assert messages(documented) == []
    assert messages(function(40) + "\n    # why") == []
    assert messages(function(40) + "\n    # why\n    y = 2") == [
        "noun.py:1: function wide has 42 lines of code, over the limit of 40"
    ]
    assert messages(function(41, "async def wide():"))


def test_a_method_and_a_nested_function_are_functions_too() -> None:
    """Both are found, wherever they stand, and by their own line."""
    method = "\n".join(["class A:", *("    " + line for line in function(41).splitlines())])
    assert messages(method) == ["noun.py:2: function wide has 41 lines of code, over the limit of 40"]
    outer = "\n".join(["def outer():", *("    " + line for line in function(41).splitlines())])
    assert [line.split(": ")[0] for line in messages(outer)] == ["noun.py:1", "noun.py:2"]


@pytest.mark.parametrize(
    "opening",
    ["if a:", "for a in b:", "while a:", "with a:", "async for a in b:", "async with a:"],
)
def test_blocks_lie_3_deep_at_most(opening: str) -> None:
    """Every kind of block counts, in whatever order."""
    third = ["async def deep():", "    try:", "        match a:", "            case 1:", f"                {opening}"]
    assert messages("\n".join([*third, " " * 20 + "x()", "    finally:", "        y()"])) == []
    fourth = [*third, " " * 20 + "if c:", " " * 24 + "x()", "    finally:", "        y()"]
    assert messages("\n".join(fourth)) == ["noun.py:1: function deep is nested 4 deep, over the limit of 3"]


def test_an_elif_is_no_deeper_than_its_if() -> None:
    """A chain is one block; an `if` inside an `else` is two, however it is written."""
    head = "def f():\n    for a in b:\n        for c in d:\n"
    first = " " * 12 + "if a:\n" + " " * 16 + "x()\n"
    others = "".join(" " * 12 + f"elif {name}:\n" + " " * 16 + "y()\n" for name in "cde")
    assert messages(head + first + others) == []
    inner = " " * 12 + "else:\n" + " " * 16 + "y()\n" + " " * 16 + "if e:\n" + " " * 20 + "z()\n"
    assert messages(head + first + inner)


def test_a_nested_function_starts_anew() -> None:
    """Its blocks are its own."""
    inner = "\n".join(" " * (16 + 4 * level) + f"if b{level}:" for level in range(3)) + "\n" + " " * 28 + "x()"
    assert messages("def f():\n    for a in b:\n        if a:\n            def g():\n" + inner) == []


def test_6_positional_parameters_are_enough() -> None:
    """Keyword-only ones are free, and self and cls are not counted."""
    assert messages("def f(a, b, c, d, e, /, g, *rest, h, i, j, **more): ...") == []
    assert messages("class A:\n    def f(self, a, b, c, d, e, g): ...\n    def h(cls, a, b, c, d, e, g): ...") == []
    assert messages("def f(a, b, c, d, e, /, g, h=1): ...") == [
        "noun.py:1: function f has 7 positional parameters, over the limit of 6"
    ]


def test_a_class_has_15_public_methods_at_most() -> None:
    """A property and its setter are one, private methods and dunders are none."""
    methods = [f"    def m{number}(self): ..." for number in range(14)]
    extra = ["    @property\n    def p(self): ...", "    @p.setter\n    def p(self, value): ..."]
    free = ["    def _private(self): ...", "    def __len__(self): ..."]
    assert messages("\n".join(["class A:", *methods, *extra, *free])) == []
    assert messages("\n".join(["class A:", *methods, *extra, *free, "    async def m14(self): ..."])) == [
        "noun.py:1: class A has 16 public methods, over the limit of 15"
    ]


@pytest.mark.parametrize(
    "name", ["worker_impl.py", "worker_more.py", "worker2.py", "worker_2.py", "utils.py", "base.py"]
)
def test_a_name_that_hides_a_split_or_says_nothing_is_a_violation(name: str) -> None:
    """A file split only for the count is worse than the limit."""
    assert messages("x = 1", name)
    assert messages("x = 1", "int8.py") == []


def test_the_script_lists_each_violation_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes through folders, prints file, line and number, and ends with 1, or with 0 where there is nothing."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "long.py").write_text(function(50))
    (tmp_path / "fine.py").write_text("x = 1\n")
    assert main([str(tmp_path / "fine.py")]) == 0
    assert main([str(tmp_path)]) == 1
    expected = f"{tmp_path / 'deep' / 'long.py'}:1: function wide has 50 lines of code, over the limit of 40"
    assert expected in capsys.readouterr().out


def test_all_of_the_source_is_looked_at() -> None:
    """The folders that the script goes through are there, and this file is among them."""
    root = Path(__file__).parents[1]
    files = {path.resolve() for path in python_files(root / folder for folder in FOLDERS)}
    assert {
        Path(__file__).resolve(),
        root / "producer/cordwood/keys.py",
        root / "worker/cordwood_worker/batch.py",
    } <= files
