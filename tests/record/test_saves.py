"""Checkpoints: a process says that it saves, for as long as it does, whatever comes of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from vanidl.record import life
from vanidl.record.injected.vanidl_steps import hooks, journal, saves
from vanidl.record.injected.vanidl_steps.present import SAVE

SAVING = {
    "torch.serialization": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file", "save_model"),
    "keras.src.saving.saving_api": ("save_model", "save_weights"),
    "tensorflow.python.checkpoint.checkpoint": ("save",),
}


def test_a_save_is_said_while_it_goes_on(tmp_path: Path) -> None:
    channel = hooks.Channel("saves", journal.Journal(str(tmp_path)))
    present, seen = channel.journal.present, []

    def save(target: str) -> str:
        seen.append(present._doing[0])
        if target == "full":
            raise OSError("no space left")
        return target

    module = SimpleNamespace(save=save)
    saves.watch_torch(module, channel)
    before = present.begin(journal.WAIT)
    assert module.save("here") == "here"
    assert present._doing[0] == journal.WAIT
    with pytest.raises(OSError, match="no space"):
        module.save(target="full")
    present.end(before)
    assert seen == [SAVE, SAVE]
    assert present._doing == (0, 0)


def test_who_reads_the_page_knows_its_words() -> None:
    from vanidl.record.injected.vanidl_steps import present

    assert life.SAVE == present.SAVE
    assert present.NAME in life._LINK
    assert life._PAGE.size == present.SIZE


@pytest.mark.parametrize("name", SAVING)
def test_frameworks_have_what_is_watched(name: str) -> None:
    assert name in {theirs for theirs, ours in hooks.HOOKS if ours.startswith("saves.")}
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    for function in SAVING[name]:
        assert f"def {function}(" in source
