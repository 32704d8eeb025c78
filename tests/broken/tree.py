"""A copy of the code to break, and an interpreter of its own that runs it.

Tests start `redrive`, `python -m redrive` and modules of theirs in processes of their own, some
with an environment that has nothing of ours. All of them are found beside the interpreter that runs
the tests. So the copy has its own: it finds `redrive` in the copy, and everything else where this
one does. The code that is worked on is never touched.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.broken.mutation import Mutation

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("src", "tests")
_REDRIVE: Final = "#!{python}\nimport sys\nfrom redrive.cli import main\nsys.exit(main())\n"
_WHERE: Final = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]).origin)"


class Tree:
    """The copy. Whoever makes it removes its folder."""

    def __init__(self, folder: Path) -> None:
        """Make it in an empty folder."""
        self.root = folder.resolve()
        for entry in ROOT.iterdir():
            if entry.name in _COPIED:
                # What is compiled of the source is valid in the copy, and saves it seconds.
                ignored = None if entry.name == "src" else shutil.ignore_patterns("__pycache__")
                shutil.copytree(entry, self.root / entry.name, ignore=ignored)
            elif entry.is_file():
                shutil.copy2(entry, self.root / entry.name)
            elif not entry.name.startswith("."):
                (self.root / entry.name).symlink_to(entry)
        self._make_interpreter(self.root / ".venv")

    def _make_interpreter(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        # A line of such a file is a folder to import from. What leads to the source that is worked
        # on is another such file, in one of these folders; there they are not read.
        (packages,) = folder.glob("lib/python*/site-packages")
        found = (str(self.root / "src"), *site.getsitepackages())
        (packages / "copy.pth").write_text("\n".join(found) + "\n", encoding="utf-8")
        redrive = folder / "bin" / "redrive"
        redrive.write_text(_REDRIVE.format(python=self.python), encoding="utf-8")
        redrive.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that run the copy: ours, without what would lead them elsewhere."""
        elsewhere = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        return {name: value for name, value in os.environ.items() if name not in elsewhere}

    @contextmanager
    def broken(self, mutation: Mutation) -> Iterator[None]:
        """The copy with a mutation in it; as it was afterwards."""
        texts = mutation.made_in(self.root)
        before = {file: (self.root / file).read_text(encoding="utf-8") for file in texts}
        try:
            for file, text in texts.items():
                self._write(file, text)
                self.require_run(file)
            yield
        finally:
            for file, text in before.items():
                self._write(file, text)

    def _write(self, file: str, text: str) -> None:
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        # Python tells by size and second whether it is of this source.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def require_run(self, file: str) -> None:
        """Raise unless this file of the copy is what processes run that are started there, also
        those that are given no environment."""
        module = ".".join(Path(file).relative_to("src").with_suffix("").parts)
        found = subprocess.run(
            [self.python, "-c", _WHERE, module],
            env={},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if Path(found) != self.root / file:
            raise RuntimeError(f"the copy would run {found}, and not what was broken in it")
