"""The half of the corpus that whoever writes the grouping rules may read."""

from __future__ import annotations

from tests.unit.error_corpus import Kind
from tests.unit.error_corpus.seen import dotnet, go, java, node, python, text

KINDS: tuple[Kind, ...] = (
    *java.KINDS,
    *dotnet.KINDS,
    *python.KINDS,
    *go.KINDS,
    *node.KINDS,
    *text.KINDS,
)
