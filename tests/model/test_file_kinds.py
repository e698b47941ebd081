import pytest

from vanidl.errors import UsageError
from vanidl.model.file_kinds import (
    KINDS,
    data_kind,
    kind_of,
    log_paths,
    parse_rules,
    profiler_rules,
)
from vanidl.readers.registry import FORMATS


@pytest.mark.parametrize(
    ("path", "read", "written", "kind"),
    [
        ("/proc/self/maps", 10, 0, "system"),
        ("/procedures/data.h5", 10, 0, "dataset"),
        ("/opt/app/train.py", 10, 0, "code"),
        ("/data.pyramid/a.bin", 10, 0, "dataset"),
        ("/usr/lib/libc.so.6", 10, 0, "code"),
        ("/v/lib/python3.11/site-packages/torch/x.json", 10, 0, "code"),
        ("/tb/events.out.tfevents.1.h.2.0", 0, 10, "log"),
        ("/tb/h_1.2.pt.trace.json.gz", 0, 10, "log"),
        ("/tb/plugins/profile/1/h.xplane.pb", 0, 10, "log"),
        ("<STDERR>", 0, 10, "log"),
        ("/out/ckpt-1.pt", 0, 10, "checkpoint"),
        ("/out/model_500.ckpt.index", 5, 10, "checkpoint"),
        ("/out/model.safetensors", 10, 0, "checkpoint"),  # restored, or pretrained
        ("/out/model_500.ckpt", 10, 0, "checkpoint"),
        ("/out/checkpoint-500/optimizer.pt", 10, 0, "checkpoint"),
        ("/hub/pytorch_model.bin", 10, 0, "checkpoint"),
        ("/data/sample_00017.pt", 10, 0, "dataset"),
        ("/data/modelnet40/airplane.h5", 10, 0, "dataset"),
        ("/data/models.tfrecord", 10, 0, "dataset"),
        ("/run/dftracer/trace-0.pfw", 0, 10, "log"),
        ("/run/dftracer/trace-0.pfw.gz", 10, 10, "log"),
        ("/opt/conda/bin/torchrun", 10, 0, "code"),
        ("/usr/bin/python3.11", 10, 0, "code"),
        ("/usr/sbin/ldconfig", 10, 0, "code"),
        ("/data/bin/shard-0.bin", 10, 0, "dataset"),
        ("/data/kitti/bin/000001.bin", 10, 0, "dataset"),
        ("/data/cabin/photo", 10, 0, "dataset"),
        ("/out/anything.bin", 0, 10, "checkpoint"),  # written and never read
        ("/data/train.h5", 10, 0, "dataset"),
        ("/scratch/cache.bin", 10, 10, "other"),
        ("/data/opened-only.h5", 0, 0, "other"),
    ],
)
def test_first_match_wins(path, read, written, kind):
    assert kind in KINDS
    outputs = log_paths(known.outputs for known in FORMATS)
    assert kind_of(path, read, written, logs=outputs) == kind


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        ({"dataset": 1 << 30, "other": 1 << 35}, "dataset"),
        ({"dataset": 0, "other": 121 << 30, "code": 1 << 40}, "other"),
        ({"dataset": 300, "other": 121 << 30}, "other"),
        ({"checkpoint": 1 << 30, "other": 1 << 21}, "checkpoint"),
        ({"dataset": 50 << 20, "checkpoint": 300 << 30}, "dataset"),
        ({"other": 500, "checkpoint": 1000, "log": 1 << 40}, "dataset"),
        ({}, "dataset"),
    ],
)
def test_the_largest_kind_that_was_read_stands_for_a_missing_dataset(read, kind):
    assert data_kind(read) == kind


def test_the_users_rules_come_first():
    rules = parse_rules(["*/site-packages/*.npy=dataset", "*.py=other"])
    assert kind_of("/lib/python3/site-packages/a.npy", 1, 0, rules) == "dataset"
    assert kind_of("/a.py", 1, 0, rules) == "other"


@pytest.mark.parametrize("text", ["", "x", "=dataset", "*.h5=", "*.h5=datasets"])
def test_a_rule_must_name_a_kind(text):
    with pytest.raises(UsageError, match="GLOB=KIND"):
        parse_rules([text])


def test_what_a_profiler_wrote_for_itself_is_a_log():
    rules = profiler_rules(["/tmp/tmp[1]x.json", ""])
    assert kind_of("/tmp/tmp[1]x.json", 5, 0, rules) == "log"
    assert kind_of("/tmp/tmp[1]x.json.tmp", 0, 5, rules) == "log"
    assert kind_of("/tmp/tmp1x.json", 5, 0, rules) == "dataset"


@pytest.mark.parametrize(
    ("path", "read", "written", "saved", "kind"),
    [
        ("/run/metrics.csv", 0, 5000, False, "log"),
        ("/run/metrics.csv", 0, 5000, None, "checkpoint"),  # nobody knows what was saved
        ("/run/metrics.csv", 5, 5000, False, "other"),
        ("/run/state", 0, (1 << 20) - 1, False, "log"),
        ("/run/state", 0, 1 << 20, False, "checkpoint"),
        ("/run/state.pt", 0, 5000, False, "checkpoint"),
        ("/run/last", 5000, 0, True, "checkpoint"),  # read again for an upload
        ("/run/last", 5000, 0, False, "dataset"),
        ("/run/train.log", 0, 5000, True, "log"),
    ],
)
def test_what_a_file_is_follows_from_its_use(
    path: str, read: int, written: int, saved: bool | None, kind: str
) -> None:
    assert kind_of(path, read, written, saved=saved) == kind
    assert kind_of(path, read, written, [("*", "other")], saved=saved) == "other"
