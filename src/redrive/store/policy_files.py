"""The file's side of the policies: `[[policy]]`, read at start, and a properties file, read anew
whenever it changes. Of equal names `[[policy]]` counts.

A file that cannot be read raises SettingsError: without its policies, everything that it configures
would look unconfigured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redrive.domain.policy import Policy, PolicyProblem
from redrive.domain.properties import decode_properties, read_policies
from redrive.errors import SettingsError
from redrive.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class FilePolicies:
    """What the files say, nearest first, and what in them was left out."""

    policies: tuple[Policy, ...] = ()
    problems: tuple[PolicyProblem, ...] = ()


class PolicyFiles:
    """Both files. `read` does I/O only where there is a properties file."""

    def __init__(self, policies: Sequence[PolicySettings], properties: Path | None) -> None:
        self._toml = tuple(
            Policy(
                name=policy.name,
                max_retries=policy.max_retries,
                return_to=policy.return_to,
                retry_expired=policy.retry_expired,
            )
            for policy in policies
        )
        self._properties = properties
        self._seen: tuple[int, int, int] | None = None
        self._read = FilePolicies(self._toml)

    def read(self) -> FilePolicies:
        """What the files say now. Blocks for as long as the disk does."""
        if self._properties is None:
            return self._read
        try:
            found = self._properties.stat()
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            if state == self._seen:
                return self._read
            content = self._properties.read_bytes()
        except OSError as error:
            # It may come back as it was, and must then be reported as readable again.
            self._seen = None
            raise SettingsError(
                f"policy_table.properties: {self._properties}: cannot be read: {error.strerror}"
            ) from error
        policies, problems = read_policies(decode_properties(content))
        self._read = FilePolicies((*self._toml, *policies), tuple(problems))
        self._seen = state
        return self._read
