"""The pages that are made of code are current; that of the SDK covers all that is public."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import redrive
from redrive import testing
from scripts import api_page, commands_page, events_page, metrics_page, settings_page
from scripts.reference import PAGE, page

NO_EVENTS = {"letter.deaths", "letter.size"}
"""Names of something else that read like events."""


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m scripts.reference"


@pytest.mark.parametrize("made", [metrics_page, commands_page, settings_page, api_page])
def test_what_other_pages_have_from_the_code_is_current(made: ModuleType) -> None:
    text = made.PAGE.read_text(encoding="utf-8")
    assert text == made.page(), "run: python -m scripts.reference"


def test_the_page_of_events_is_current_and_says_what_each_means() -> None:
    text = events_page.PAGE.read_text(encoding="utf-8")
    assert text == events_page.page(), "run: python -m scripts.reference"
    told = set(events_page.MEANINGS) | set(events_page.ELSEWHERE)
    assert set(events_page.events()) == told


def test_no_event_is_missing_on_the_page_of_events() -> None:
    assert events_page.written_names() - NO_EVENTS <= set(events_page.events())


def test_every_public_name_is_on_the_page() -> None:
    text = page()
    for name in redrive.__all__:
        assert name == "__version__" or name in text
    for name in ("a_message", "handle", "handled"):
        assert name in testing.__all__
        assert f"`{name}(" in text


def test_the_public_surface_is_these_names_and_no_others() -> None:
    assert sorted(redrive.__all__) == [
        "Consumer",
        "DeadLetter",
        "Message",
        "Queue",
        "RetryAfter",
        "__version__",
    ]
    assert all(getattr(redrive, name) for name in redrive.__all__)


def test_the_command_does_not_load_the_sdk() -> None:
    loaded = "import sys, redrive.cli; print('redrive.consumer' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "False"
