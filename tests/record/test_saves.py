"""Checkpoints: when a process saved or loaded which file, whatever came of it."""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from vanidl.readers.steps.journal import CHECKPOINT, LOAD, read_journal
from vanidl.readers.steps.journal import Journal as Read
from vanidl.record import alive
from vanidl.record.injected.vanidl_steps import journal, registry, saves
from vanidl.record.injected.vanidl_steps.journal import SAVE

SAVING = {
    "torch.serialization": ("save", "load"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": ("load",),
    "safetensors.torch": ("save_file", "save_model", "load_file", "load_model"),
    "keras.src.saving.saving_api": ("save_model", "save_weights", "load_model", "load_weights"),
    "tensorflow.python.checkpoint.checkpoint": ("save", "restore"),
    "lightning.pytorch.trainer.trainer": ("save_checkpoint",),
    "pytorch_lightning.trainer.trainer": ("save_checkpoint",),
    "transformers.trainer": ("_save_checkpoint", "save_model", "_load_from_checkpoint"),
    "accelerate.accelerator": ("save_state", "save_model", "load_state"),
    "orbax.checkpoint._src.checkpointers.checkpointer": ("save", "restore"),
    "orbax.checkpoint._src.checkpointers.async_checkpointer": ("save",),
}


def library(channel: registry.Channel) -> SimpleNamespace:
    """A library as PyTorch's, whose saves are watched."""

    def save(content: bytes, f: str | IO[bytes]) -> None:
        if not content:
            raise OSError("no space left")
        if isinstance(f, str):
            Path(f).write_bytes(content)
        else:
            f.write(content)

    module = SimpleNamespace(save=save, load=lambda f: Path(f).read_bytes())
    saves.watch_torch(module, channel)
    return module


def read(folder: Path, channel: registry.Channel) -> Read:
    channel.journal.close()
    assert not list(folder.glob("*-error"))
    (path,) = folder.glob("*.steps")
    return read_journal(path)


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Channel:
    for name in ("rename", "replace"):  # programs call the ones that are there
        monkeypatch.setattr(os, name, getattr(os, name))
    monkeypatch.setattr(saves, "_is_following", False)
    return registry.Channel("saves", journal.Journal(str(tmp_path)))


def test_a_save_is_said_while_it_goes_on(channel: registry.Channel) -> None:
    present, seen = channel.journal.present, []

    def save(target: str) -> str:
        seen.append(present.doing[0])
        if target == "full":
            raise OSError("no space left")
        return target

    module = SimpleNamespace(save=save)
    saves.watch_torch(module, channel)
    before = present.begin(journal.WAIT)
    assert module.save("here") == "here"
    assert present.doing[0] == journal.WAIT
    with pytest.raises(OSError, match="no space"):
        module.save(target="full")
    present.end(before)
    assert seen == [SAVE, SAVE]
    assert present.doing == (0, 0)


def test_saves_have_their_last_name_and_their_size(
    tmp_path: Path, channel: registry.Channel
) -> None:
    torch = library(channel)
    files = tmp_path / "files"
    files.mkdir()
    torch.save(b"abc", str(files / "new"))
    os.replace(files / "new", files / "model.pt")  # noqa: PTH105 - as programs do
    with (files / "open.pt").open("wb") as file:
        torch.save(b"abcde", file)
    assert torch.load(str(files / "model.pt")) == b"abc"
    with pytest.raises(OSError, match="no space"):
        torch.save(b"", str(files / "full.pt"))
    files.rename(tmp_path / "kept")
    found = read(tmp_path, channel)
    events = found.events.pick(found.events.number > 0)
    names = [found.checkpoints[k]["path"].rsplit("/", 2)[1:] for k in events.loader.tolist()]
    assert names == [["kept", "model.pt"], ["kept", "open.pt"], ["files", "model.pt"]]
    assert events.kind.tolist() == [CHECKPOINT, CHECKPOINT, LOAD]
    assert events.number.tolist() == [3, 5, 3]
    # the rename, the save that failed and the rename of the folder are events without bytes
    assert (found.events.kind == CHECKPOINT).sum() == 5


@pytest.mark.parametrize(("nbytes", "saved"), [((1 << 20) - 1, False), (1 << 20, True)])
def test_what_is_pickled_in_memory_is_no_checkpoint_unless_large(
    tmp_path: Path, channel: registry.Channel, nbytes: int, saved: bool
) -> None:
    library(channel).save(bytes(nbytes), io.BytesIO())
    channel.journal.close()
    assert bool(list(tmp_path.glob("*.steps"))) is saved


def test_the_outermost_call_counts_with_all_that_it_saved(
    tmp_path: Path, channel: registry.Channel
) -> None:
    torch = library(channel)

    class Trainer:
        def save_checkpoint(self, filepath: str) -> None:
            Path(filepath).mkdir()
            torch.save(b"abc", f"{filepath}/model")
            torch.save(b"de", f"{filepath}/optimizer")

    saves.watch_lightning(SimpleNamespace(Trainer=Trainer), channel)
    Trainer().save_checkpoint(str(tmp_path / "step-3"))
    found = read(tmp_path, channel)
    assert found.events.kind.tolist() == [CHECKPOINT]
    assert found.events.number.tolist() == [5]
    (name,) = found.checkpoints.values()
    assert name["path"] == str(tmp_path / "step-3")
    assert name["call"] == "Trainer.save_checkpoint"


def test_a_program_that_saves_nothing_keeps_its_own_rename(channel: registry.Channel) -> None:
    before = os.rename
    torch = library(channel)
    with pytest.raises(FileNotFoundError):
        torch.load("/nowhere")
    assert os.rename is before


def test_who_reads_the_page_knows_its_words() -> None:
    assert alive.SAVE == journal.SAVE
    assert journal.NAME in alive._LINK
    assert alive._PAGE.size == journal.SIZE


@pytest.mark.parametrize("name", SAVING)
def test_frameworks_have_what_is_watched(name: str) -> None:
    assert name in {theirs for theirs, ours in registry.HOOKS if ours.startswith("saves.")}
    package, *inner = name.split(".")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    source = Path(spec.submodule_search_locations[0], *inner).with_suffix(".py").read_text()
    for function in SAVING[name]:
        assert f"def {function}(" in source
