"""How a command ended, in words: said before any number of a run that failed."""

from __future__ import annotations

from vanidl.formatting.names import elided
from vanidl.formatting.units import plural
from vanidl.model.run_facts import Ending

_MOST_ERROR = 300


def ending_words(ending: Ending | None) -> str:
    """A sentence, "" where the command ended well, or nothing is known of its end."""
    if ending is None or not (ending.failed or ending.memory_kills):
        return ""
    said = [f"The program {_how(ending)}"]
    if ending.memory_kills:
        killed = plural(ending.memory_kills, "process", "processes")
        said.append(f"the kernel killed {killed} as memory had run out")
    if ending.last_error and ending.failed:
        said.append(elided(ending.last_error, limit=_MOST_ERROR))
    return f"{'; '.join(said)}."


def _how(ending: Ending) -> str:
    if not ending.failed:
        return "ended with exit status 0, but not all of it"
    if ending.signal:
        return f"was ended by {ending.signal} (exit status {ending.exit_status})"
    return f"failed with exit status {ending.exit_status}"
