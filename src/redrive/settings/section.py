"""What every section of the settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A table of the file: no unknown keys, no changes, no values in pydantic's own errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields of a section, by their names in a file: `for` is no name in Python."""
    return {field.alias or name: field for name, field in section.model_fields.items()}
