"""The half of the corpus that measures the grouping rules: whoever writes them does not read it."""

from __future__ import annotations

from tests.unit.error_corpus import Kind
from tests.unit.error_corpus.held_out import (
    beam_and_rust,
    dotnet,
    go,
    java,
    node,
    python,
    scripting,
    text,
)

KINDS: tuple[Kind, ...] = (
    *java.KINDS,
    *dotnet.KINDS,
    *python.KINDS,
    *go.KINDS,
    *node.KINDS,
    *scripting.KINDS,
    *beam_and_rust.KINDS,
    *text.KINDS,
)
