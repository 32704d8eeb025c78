"""Kinds that once measured the grouping rules, and since may be read: now of the seen half."""

from __future__ import annotations

from tests.unit.error_corpus import Kind
from tests.unit.error_corpus.once_held_out import dotnet, go, java, node, python, text

KINDS: tuple[Kind, ...] = (
    *java.KINDS,
    *dotnet.KINDS,
    *python.KINDS,
    *go.KINDS,
    *node.KINDS,
    *text.KINDS,
)
