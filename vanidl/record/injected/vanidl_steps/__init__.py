"""Records the steps and input waits of the program that it is loaded into.

It knows nothing of vanidl and needs nothing but the standard library: it runs in the Python of
the program. `vanidl record` sets its environment: `VANIDL_STEPS` names the folder to write to,
`VANIDL_RANK_VARIABLES` the variables that may hold the rank, `VANIDL_WAITS` iterators by name,
`VANIDL_TRAINS` functions by name each call of which is a step,
`VANIDL_PROFILE` how many steps to profile, if any, `VANIDL_CEILING` how to hand batches out from
memory: how many are kept, in how many bytes, and how long a pass is that does not know.
A process without a loader writes no file.
"""

from __future__ import annotations

import os

FOLDER_VARIABLE = "VANIDL_STEPS"
NAMED_VARIABLE = "VANIDL_WAITS"
TRAINS_VARIABLE = "VANIDL_TRAINS"
PROFILE_VARIABLE = "VANIDL_PROFILE"
CEILING_VARIABLE = "VANIDL_CEILING"


def start() -> None:
    """Waits for the modules that it can record; does nothing where no folder is named."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    from . import journal, registry

    journal.keep_last_error(folder)
    events = journal.Journal(folder)

    # Either batches from memory are handed out, or all that there are hooks for is recorded.
    profiling = registry.PROFILE_HOOKS if os.environ.get(PROFILE_VARIABLE) else ()
    always = registry.replaying() if os.environ.get(CEILING_VARIABLE) else registry.HOOKS
    if not (os.environ.get(NAMED_VARIABLE) or os.environ.get(TRAINS_VARIABLE)):
        registry.install(events, (*always, *profiling))
        return
    from . import named

    registry.install(events, (*always, *named.hooks(), *profiling))
    named.watch_main(registry.Channel("named", events))
