"""What the document on tasks says of their options, and whether its examples run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from cordwood.options import MAX_PROMPT_BYTES, OUTPUTS, TRUNCATIONS, EmbedOptions
from tests.docs.markdown import ROOT, blocks, codes, table
from tests.docs.test_readme import run_example

TEXT = (ROOT / "docs" / "tasks.md").read_text("utf-8")
PRINTED = ("(1, 8) (12,)\n", "(0,)\n", "(1, 4) float32 (1, 1) uint8\n")
"""What each example prints with the fault backend, at first."""


def test_every_option_of_embed_is_in_the_table_with_its_default_and_error() -> None:
    """In the order of the code, with the values that it may have."""
    rows = table(TEXT, "option", "default", "meaning", "error")
    assert [row[0].strip("`") for row in rows] == [field.name for field in fields(EmbedOptions)]
    for (name, default, meaning, error), field in zip(rows, fields(EmbedOptions), strict=True):
        assert default.strip("`") == ("none" if field.default is None else str(field.default)), name
        assert meaning
        assert "InvalidInput" in error or "JobFailed" in error
    named = {code for row in rows for code in codes(row[2])}
    assert named >= {*TRUNCATIONS, *OUTPUTS}
    assert f"{MAX_PROMPT_BYTES:,} bytes" in rows[0][3]


def test_every_option_is_in_an_example() -> None:
    """But the name of a prompt, which depends on the model."""
    examples = "\n".join(blocks(TEXT, "python"))
    assert {field.name for field in fields(EmbedOptions) if f"{field.name}=" not in examples} == {"prompt_name"}


@pytest.mark.parametrize(
    ("example", "printed"), list(zip(blocks(TEXT, "python"), PRINTED, strict=True)), ids=["a", "b", "c"]
)
def test_the_examples_run(served_url: str, tmp_path: Path, example: str, printed: str) -> None:
    """As they are."""
    assert run_example(example, served_url, tmp_path).startswith(printed)
