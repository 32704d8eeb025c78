"""What an edit of many letters does or would do, as programs see it."""

from __future__ import annotations

from typing import Any

from redrive.work.difference import difference
from redrive.work.edit_group import Survey
from redrive.work.redact import Redaction


def sample_difference(found: Survey, redaction: Redaction) -> list[str]:
    """The example line by line; nothing if there is none."""
    if found.sample is None:
        return []
    return difference(found.sample.before, found.sample.after, redaction)


def survey_document(found: Survey, edited: int, redaction: Redaction) -> dict[str, Any]:
    """How many letters it fits and why not the others, with one as an example."""
    sample = found.sample
    return {
        "letters": found.letters,
        "edited": edited,
        "fit": found.fit,
        "unchanged": found.unchanged,
        "unfit": [
            {"reason": unfit.reason, "letters": unfit.letters, "example": unfit.example}
            for unfit in found.unfit
        ],
        "sample": None
        if sample is None
        else {"id": sample.letter_id, "diff": sample_difference(found, redaction)},
    }
