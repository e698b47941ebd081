"""Python imports this at its start because `vanidl record` put its folder on PYTHONPATH.

It starts the recording of steps, takes its folder off the program's path again, and hands over
to the site's own `sitecustomize`, which it hides.
"""

import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib loads too much


def _start() -> None:
    """Recording must never keep a program from running."""
    try:
        import vanidl_steps  # type: ignore[import-not-found]

        vanidl_steps.start()
    except Exception as error:
        sys.stderr.write(f"vanidl: steps are not recorded ({error!r})\n")


def _hand_over() -> None:
    """Runs the site's own module as if this one were not there; its errors stay its own."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]  # noqa: PTH100
_hand_over()
