from __future__ import annotations

import pytest

from benchmarks.figures import FIGURES
from tests.docs.markdown import ROOT, codes, commands, table

TEXT = (ROOT / "docs" / "performance.md").read_text("utf-8")


@pytest.mark.parametrize("benchmark", FIGURES)
def test_every_figure_of_a_benchmark_is_explained(benchmark: str) -> None:
    """In its order, and no other is."""
    rows = [row for row in table(TEXT, "figure", "of", "means") if row[1] == benchmark]
    assert [name for row in rows for name in codes(row[0])] == list(FIGURES[benchmark])
    assert all(row[2] for row in rows)


def test_the_commands_name_benchmarks_that_there_are() -> None:
    """Or the one for a GPU."""
    lines = commands(TEXT, "python")
    assert len(lines) == 3
    for module, *words in (line[1:] for line in lines):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists() or (ROOT / module / "__main__.py").exists()
        assert module != "benchmarks" or {word for word in words if not word.startswith("--")} <= set(FIGURES)
