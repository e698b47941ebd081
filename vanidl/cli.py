"""The command line: parses, dispatches, and turns errors into one line and a status.

Exit status: 0 done, 1 the input is unusable, 2 wrong usage, 3 a comparison with
--fail-on found what it looks for, 128 + N ended by signal N.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from vanidl.commands import console, find_command
from vanidl.commands.installation import mixed_up
from vanidl.commands.parser import parser
from vanidl.errors import SeveralJobsError, VanidlError
from vanidl.parallel.children import ended_with_block

INTERRUPTED = 130
_NO_MEMORY = (
    "expected memory for the result, found none left; give the command more (ulimit -v, the job's "
    "limit), or look at less: --from, --to, --only, or a part of the folder"
)
_GARBAGE = 200_000  # new objects before the collector looks; 700 unless set


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status. Never raises for a bad input."""
    # What is imported and read stays until the end, so looking through it for garbage finds none.
    gc.set_threshold(_GARBAGE)
    with console.prepared():
        if note := mixed_up():
            console.tell(f"vanidl: {note}\n")
        options = parser().parse_args(arguments)
        try:
            with ended_with_block():
                status = find_command(options.command).run(options)
            sys.stdout.flush()
        except VanidlError as error:
            return _fail(error)
        except MemoryError:
            return _fail(VanidlError(_NO_MEMORY))
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as error:
            return _unwritable(error)
        return status


def _unwritable(error: OSError) -> int:
    """What is left to go wrong once the input was read: standard output."""
    console.discard(sys.stdout)
    if isinstance(error, BrokenPipeError):  # the reader went away: no message, as other tools do
        return 1
    return _fail(VanidlError(f"cannot write the output: {error.strerror or error}"))


def entry() -> None:
    """The console script."""
    status = main()
    gc.freeze()  # else the end looks through all modules: a fifth of the time of a small summary
    sys.exit(status)


def _fail(error: VanidlError) -> int:
    message = " ".join(str(error).split())
    table = f"{error.table}\n" if isinstance(error, SeveralJobsError) and error.table else ""
    console.tell(f"vanidl: {message}\n{table}")
    return error.exit_status
