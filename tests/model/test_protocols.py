"""No order of steps and crashes loses a message, or doubles one where nothing makes it unavoidable.

Every state of small models is visited: docs/explanation/protocols.md describes them. Each broken
variant of a protocol is caught, so the search would notice if a rule were missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.explorer import Explored, explore
from tests.model.mover_protocol import MoverProtocol
from tests.model.mover_protocol import Variant as MoverVariant
from tests.model.sender_protocol import SenderProtocol
from tests.model.sender_protocol import Variant as SenderVariant


def explored(protocol: MoverProtocol | SenderProtocol) -> Explored[object]:
    # Each protocol has states of its own kind, which only it looks at.
    return explore(
        protocol.first(),
        protocol.steps,  # type: ignore[arg-type]
        protocol.wrong_in,  # type: ignore[arg-type]
        protocol.wrong_at_end,  # type: ignore[arg-type]
    )


PAGE = Path(__file__).parents[2] / "docs/explanation/protocols.md"


def on_the_page() -> set[tuple[str, ...]]:
    """The rows of its tables, without commas in numbers."""
    text = PAGE.read_text(encoding="utf-8").replace(",", "")
    return {
        tuple(cell.strip() for cell in row.strip("|").split("|"))
        for row in text.splitlines()
        if row.startswith("| ")
    }


# messages, crashes, whether publishes may be returned or refused, and how many states there are
MOVERS = [
    (1, 0, True, 16),
    (1, 3, True, 5_515),
    (2, 1, True, 15_390),
    (2, 2, False, 16_138),
    (3, 1, False, 28_829),
]


@pytest.mark.parametrize(("messages", "crashes", "trouble", "states"), MOVERS)
def test_the_mover_loses_nothing_and_marks_every_second_copy(
    messages: int, crashes: int, trouble: bool, states: int
) -> None:
    found = explored(MoverProtocol(messages, crashes, trouble=trouble))
    assert found.wrong is None, str(found)
    assert found.states == states
    assert found.ends > 0
    row = (str(messages), str(crashes), "yes" if trouble else "no", str(states))
    assert row in on_the_page()


@pytest.mark.parametrize(
    "variant", sorted(set(MoverVariant) - {MoverVariant.RIGHT}, key=str), ids=lambda v: v.name
)
def test_a_mover_with_a_rule_broken_is_caught(variant: MoverVariant) -> None:
    found = explored(MoverProtocol(2, 1, variant))
    assert found.wrong is not None
    assert found.way


# letters, workers, crashes, revivals, times that a person sends again, and states
SENDERS = [
    (1, 1, 0, 2, 0, 109),
    (1, 2, 2, 2, 1, 27_205),
    (2, 1, 2, 2, 0, 51_219),
    (2, 2, 2, 1, 0, 30_076),
    (3, 1, 1, 1, 0, 277_212),
]


@pytest.mark.parametrize(
    ("letters", "workers", "crashes", "revivals", "persons", "states"), SENDERS
)
def test_the_sender_sends_nothing_twice_by_itself_and_resolves_only_what_was_handled(
    letters: int, workers: int, crashes: int, revivals: int, persons: int, states: int
) -> None:
    protocol = SenderProtocol(letters, workers, crashes, revivals=revivals, persons=persons)
    found = explored(protocol)
    assert found.wrong is None, str(found)
    assert found.states == states
    assert found.ends > 0
    row = (letters, workers, crashes, revivals, persons, states)
    assert tuple(map(str, row)) in on_the_page()


@pytest.mark.parametrize(
    "variant", sorted(set(SenderVariant) - {SenderVariant.RIGHT}, key=str), ids=lambda v: v.name
)
def test_a_sender_with_a_rule_broken_is_caught(variant: SenderVariant) -> None:
    found = explored(SenderProtocol(1, 2, 1, variant, persons=1))
    assert found.wrong is not None
    assert found.way
