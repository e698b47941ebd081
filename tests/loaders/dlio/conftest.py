from __future__ import annotations

import sys
from importlib import import_module
from threading import Lock
from types import SimpleNamespace

import pytest

from tests.loaders.dlio import standin

OURS = "vanidl_loaders.dlio"


def forget(monkeypatch):
    """Has the next import of our package look for DLIO again."""
    for name in [name for name in sys.modules if name == OURS or name.startswith(f"{OURS}.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def imported(monkeypatch):
    """A function modules -> our package, imported where these (or None) are DLIO's."""
    import vanidl_loaders

    before = vars(vanidl_loaders).get("dlio")

    def import_with(modules):
        forget(monkeypatch)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        return import_module(OURS)

    yield import_with
    for name in [name for name in sys.modules if name == OURS or name.startswith(f"{OURS}.")]:
        del sys.modules[name]
    vars(vanidl_loaders).pop("dlio", None)
    if before is not None:
        vanidl_loaders.dlio = before


@pytest.fixture
def dlio(imported):
    """The stand-in: `package` of ours, `spans` and `slept`, and `loader` to make one."""
    state = SimpleNamespace(args=None, spans=standin.Spans(), slept=[])
    one_at_a_time = Lock()
    state.package = imported(standin.modules(state))

    def loader(kind, args, name="npy"):
        with one_at_a_time:  # ranks are threads here, and DLIO's configuration is one a process
            state.args = args
            made = getattr(state.package, kind)(name, standin.DatasetType.TRAIN, 1)
        made.read()
        return made

    def reader(args):
        state.args = args
        return state.package.OwnFilesReader(standin.DatasetType.TRAIN, 0, 1)

    state.loader, state.reader = loader, reader
    return state
