"""The `redrive` command: what it prints when things go wrong, and the code it exits with.

Guarantees: data on stdout, everything else on stderr. An error is one line that says what is wrong
and what to do (wrong settings: a line each), with passwords masked, never a traceback; only
Python's development mode (`PYTHONDEVMODE=1`) shows where an unforeseen error came from.

Exit: 0 done, 1 failed, 2 wrong use or wrong settings, 3 nothing matched, 130 interrupted.

Importing this package is cheap: Typer is loaded by `main`, rich and pydantic by the command that
needs them.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from redrive.cli.stdout import write_wholly
from redrive.domain.masking import mask_text
from redrive.errors import CursorRefused, OrderRefused, RedriveError, SettingsError

_GARBAGE: Final = 50_000
"""New objects between two looks for garbage; 700 is Python's own, and imports make a hundred
thousand that all stay."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `arguments`, by default the process's own, and exit."""
    if arguments is None:
        gc.set_threshold(_GARBAGE)
        write_wholly()
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        # Here rather than when Python ends, where a closed pipe could not be answered quietly.
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # Who reads our output has had enough.
        _drop_output()
        code = 1
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        _complain(f"the output could not be written: {error.strerror}", remedy="make room for it")
        code = 1
    sys.exit(code)


def _drop_output() -> None:
    """What is still buffered must not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    import logging  # noqa: PLC0415  (lazily: see above)

    from typer import Abort, TyperException  # noqa: PLC0415

    from redrive.cli.app import build  # noqa: PLC0415

    # Without any handler Python would print what libraries log, tracebacks too.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        code = build().main(list(arguments), prog_name="redrive", standalone_mode=False)
    except (SettingsError, OrderRefused, CursorRefused) as error:
        _complain(*str(error).splitlines(), remedy=error.remedy)
        return 2
    except RedriveError as error:
        _complain(str(error), remedy=error.remedy)
        return 1
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "redrive"
        before = hasattr(error, "option_name") and hasattr(context and context.command, "commands")
        place = "options stand behind the command; " if before else ""
        # Of no one parameter: a sentence of ours, that says itself what is wrong.
        problem = error.format_message().removeprefix("Invalid value: ").rstrip(".")
        problem = problem.replace(": Value error, ", ": ", 1)  # a word of the library's
        _complain(problem, remedy=f"{place}see '{command} --help'")
        return error.exit_code
    except BrokenPipeError:
        raise
    except Abort:  # Ctrl-C, or no more input, instead of an answer
        _complain("interrupted; nothing was changed", remedy="")
        return 130
    except Exception as error:
        if sys.flags.dev_mode or (isinstance(error, OSError) and error.errno in _NO_ROOM):
            raise
        _complain(
            f"unforeseen {type(error).__name__}: {error}",
            remedy="please report it, with the traceback that PYTHONDEVMODE=1 shows",
        )
        return 1
    # A command that ends by typer.Exit has its code returned here; others return nothing.
    return code if isinstance(code, int) else 0


def _complain(*problems: str, remedy: str) -> None:
    for problem in problems:
        line = " ".join(problem.split())
        if remedy and problem is problems[-1]:
            line += f" {remedy.capitalize()}" if line.endswith("?") else f"; {remedy}"
        print(f"redrive: {mask_text(line)}", file=sys.stderr)  # noqa: T201
