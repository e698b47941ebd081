"""Runs with secret words in every field that their formats have, and a search for those words."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.makers import (
    calls_files,
    dlio_results,
    event_files,
    object_files,
    pytorch_traces,
    rocprof_profiles,
    states_files,
    step_journals,
    xplane_files,
)
from tests.makers.darshan_logs import (
    POSIX_COUNTERS,
    POSIX_TIMES,
    STDIO_COUNTERS,
    STDIO_TIMES,
    Log,
    Record,
    header_length,
    log_bytes,
)
from tests.makers.dftracer_traces import PfwTrace

START_S = 1_790_857_026  # of the profiles that the makers write


CONSONANTS = "bcdfghjklmnpqrstvwxz"


@dataclass
class Secrets:
    """Words that are found nowhere else, in the forms that names take."""

    random: random.Random
    words: list[str] = field(default_factory=list)

    def __call__(self) -> str:
        letters = "".join(self.random.choices(CONSONANTS, k=9))
        digits = str(self.random.randrange(100, 999))
        forms = (letters, f"{letters[:5].title()}{digits}{letters[5:]}", f"{letters}é")
        word = forms[len(self.words) % len(forms)]
        self.words.append(word)
        return word

    def path(self, root: str) -> str:
        return f"{root}/{self()}/{self()} {self()}/{self()}.{self()[:4]}.{self()[:4]}.h5"

    def command(self) -> list[str]:
        return [f"/opt/{self()}/python", f"{self()}.py", "--key", self()]


def darshan_log(secret: Secrets, data: Path | None = None) -> bytes:
    """Every string of a log: metadata, command, mounts, names, hosts."""
    mounts = [("ext4", "/"), ("lustre", f"/{secret()}"), (secret(), f"/scratch/{secret()}")]
    roots = ["", "/scratch", mounts[1][1], mounts[2][1], f"/home/{secret()}", f"/proc/{secret()}"]
    paths = [*(secret.path(root) for root in roots), secret(), f"{mounts[2][1]}-{secret()}/x.npy"]
    paths += [str(p) for p in sorted(data.iterdir())] if data else []
    names = dict(enumerate(paths, 1))
    host, other = secret(), secret()
    reads = {i: [(4096 * k, 4096, 1.0 + k, 1.1 + k, 7) for k in range(5)] for i in names}
    records = [Record(i, 0, host if i % 2 else other, [], reads[i]) for i in names]
    counters = [(i, 0, _counters(5, 5 * 4096), [0.0] * POSIX_TIMES) for i in names]
    stdio = [(i, 0, [0] * STDIO_COUNTERS, [0.0] * STDIO_TIMES) for i in names]
    return log_bytes(
        Log(
            start=(START_S, 0),
            end=(START_S + 60, 0),
            job=(1000, 4711, 1),
            metadata=f"lib_ver={secret()}\nfork_parent=12\n{secret()}={secret()}\n".encode(),
            command=" ".join(secret.command()).encode(),
            mounts=mounts,
            names={i: name.encode() for i, name in names.items()},
            dxt={"DXT_POSIX": [records]},
            counters={"POSIX": counters, "STDIO": stdio},
            partial=("POSIX",),
        )
    )


def _counters(reads: int, nbytes: int) -> list[int]:
    values = [0] * POSIX_COUNTERS
    values[0], values[3], values[10] = 1, reads, nbytes  # opens, reads, bytes read
    return values


def pytorch_trace(secret: Secrets) -> dict:
    """Names of all kinds, and what describes the machine."""
    base = 2e6
    events = [
        {**e, "name": f"{e['name']}"} for e in pytorch_traces.steps(6, start_us=base, first=1)
    ]
    shapes = (
        f"/home/{secret()}/{secret()}/model.py(12): {secret()}", f"{secret()}::{secret()}",
        f"nn.Module: {secret()}_0", secret(), f"aten::{secret()}", f"Optimizer#{secret()}.step",
        f"\ue0000\ue001{secret()}", f"{secret()}/{secret()}", f"epoch 3 {secret()}",
    )  # fmt: skip
    events += [pytorch_traces.event(name, base + 10 * i, 5) for i, name in enumerate(shapes)]
    events += [pytorch_traces.event(f"epoch {secret()}", base, 500, "user_annotation")]
    events += [pytorch_traces.event(secret(), base, 5, secret())]
    events += [pytorch_traces.kernel(f"void {secret()}<{secret()}>(float)", base + 50, 20)]
    found = pytorch_traces.trace(events)
    return found | {
        "deviceProperties": [{"id": 0, "name": secret(), secret(): secret()}],
        "distributedInfo": {"backend": secret(), "rank": 0, "world_size": 1},
        "host_name": secret(),
        "trace_name": f"/tmp/{secret()}",
        secret(): {secret(): secret()},
    }


def event_file(secret: Secrets) -> bytes:
    tag = f"{secret()}/{secret()}"
    events = [event_files.Event(START_S + 2 + i, i, (tag, secret())) for i in range(20)]
    return event_files.event_file(events)


def run_record(secret: Secrets) -> dict:
    """A run.json with a word wherever it has text."""
    process = {
        "pid": 100, "parent_pid": 1, "command": " ".join(secret.command()), "rank": 0,
        "first_seen_ns": START_S * 10**9, "last_seen_ns": (START_S + 60) * 10**9, "running": False,
    }  # fmt: skip
    states = ("recorded", "missing", "unfinished")
    return {
        "schema": "vanidl-run/1", "id": secret(), "command": secret.command(),
        "folder": f"/home/{secret()}", "host": secret(), "tracer": "darshan",
        "tracer_version": secret(), "settings": {secret(): secret()},
        "start_ns": START_S * 10**9, "end_ns": (START_S + 60) * 10**9, "exit_status": 0, "ranks": 1,
        "mounts": [["/", "ext4"], [f"/{secret()}", secret()]],
        "processes": [process | {"pid": 100 + i, "state": s} for i, s in enumerate(states)],
        "losses": [f"NAME_EXCLUDE leaves out /home/{secret()}/{secret()} data", secret()],
    }  # fmt: skip


def dftracer_trace(secret: Secrets, folder: Path) -> None:
    trace = PfwTrace(
        host=secret(),
        folder=f"/{secret()}/{secret()}",
        command=";".join(secret.command()),
        base=START_S * 1_000_000,
    )
    for i, root in enumerate((f"/{secret()}", f"/home/{secret()}", "/scratch", ".")):
        path = secret.path(root)
        trace.io("open64", path, 1000 * i + 100, 10, ret=3)
        trace.io("read", path, 1000 * i + 200, 10, ret=4096, size=4096)
        trace.io("fread", secret.path(root), 1000 * i + 300, 10, ret=512, size=512)
    for i, name in enumerate((secret(), f"{secret()}.{secret()}", "fetch.iter")):
        trace.event(name, secret(), 100 * i, 50, epoch=1, step=i, **{secret(): secret()})
    trace.end(100_000)
    trace.write(folder / f"{secret()}-100.pfw.gz")


def xprof_profile(secret: Secrets, root: Path) -> None:
    start = START_S * 10**9
    event = xplane_files.Event
    events = [event("Profiled batch", 10**6 * i, 10**6 * i + 9 * 10**5, step=i) for i in range(6)]
    waits = ("IteratorGetNextOp::DoCompute", f"$dataloader.py:{12} __next__")
    events += [event(name, 10**6 * i, 10**6 * i + 10**5) for i, name in enumerate(waits)]
    operators = (f"{secret()}/MatMul:MatMul", f"{secret()}:Conv2D", f"{secret()}/{secret()}:Save")
    events += [
        event(name, 10**6 * i + 2 * 10**5, 10**6 * i + 5 * 10**5, title=secret(), line=secret())
        for i, name in enumerate(operators)
    ]
    gpu = f"/device:GPU:0 {secret()}"
    events += [
        event(secret(), 3 * 10**5, 4 * 10**5, hlo_op=secret(), line="Stream #1", plane=gpu),
        event(secret(), 3 * 10**5, 4 * 10**5, line=f"Stream {secret()}", plane=gpu),
    ]
    content = xplane_files.xspace(events, start_ns=start)
    xplane_files.write_xplane(root, content, host=secret())
    name = f"{secret()}.trace.json.gz"
    text = json.dumps(xplane_files.viewer_trace(events)).encode()
    (xplane_files.session(root, "2026_11_21_00_02_37") / name).write_bytes(gzip.compress(text))


def benchmark_result(secret: Secrets, root: Path) -> Path:
    """A result of DLIO with a word wherever it has text, and a log beside it."""
    folder = dlio_results.write(root / f"{secret()} {secret()}")
    (folder / f"{secret()}.darshan").write_bytes(darshan_log(secret))
    for path in folder.glob("*.json"):
        values = json.loads(path.read_text())
        values |= {"hostname": secret(), secret(): secret(), "host_cpuinfo": {secret(): secret()}}
        for key in ("1", "2"):
            if key in values:
                values[key][f"ckpt {secret()}"] = values[key].get("block1", {})
        path.write_text(json.dumps(values))
    config = folder / "configs/config.yaml"
    config.write_text(config.read_text().replace("unet3d", secret()))
    return folder


def recorded(secret: Secrets, folder: Path) -> None:
    """What the recorder's hooks leave: steps of loaders, and requests to object storage."""
    host = secret()
    described = {
        "pid": 100, "host": host, "rank": 0, "world_size": 1, "command": secret.command(),
    }  # fmt: skip
    words = " ".join(f"w0:{k * 10}-{k * 10 + 4} o:{k * 10 + 9}" for k in range(20))
    loader = {"loader": 0, "class": secret(), "dataset": secret(), "why": secret()}
    rows = [step_journals.text_rows(values) for values in (loader, {secret(): secret()})]
    journal = step_journals.journal_bytes(described, "", loaders=0) + b"".join(rows)
    name = f"{secret()}-100"
    (folder / f"{name}.steps").write_bytes(journal + step_journals.events_bytes(words))
    (folder / "run.json").write_text(json.dumps(run_record(secret)))
    paths = [f"s3://{secret()}/{secret()}/{secret()}.npy" for _ in range(3)]
    object_files.objects_of(folder, [
        (row[0], path, *row[2:]) for row in object_files.ROWS for path in paths
    ])  # fmt: skip


def recorded_calls(secret: Secrets, folder: Path) -> None:
    """What the recorder's own tracer leaves."""
    seen = [calls_files.Call(calls_files.READ, 1000 * k, 10, 9 * k, 9, 1 + k % 2) for k in range(9)]
    files = {key: secret.path(f"/scratch/{secret()}").encode() for key in (1, 2)}
    program = f"/opt/{secret()}/python".encode()
    calls = calls_files.Calls({7: seen}, files, pid=100, host=secret().encode(), program=program)
    (folder / calls.name).write_bytes(calls_files.calls_file(calls))


def sampled_states(secret: Secrets, folder: Path) -> None:
    """Where threads of a process were seen: files that they read, and the host."""
    names = [secret.path(f"/scratch/{secret()}").encode() for _ in range(2)]
    states = states_files.StatesFile(names=names, host=secret().encode())
    (folder / "node-7.states").write_bytes(states.content())


def rocprof_profile(secret: Secrets, folder: Path) -> None:
    """Names of kernels, ranges and devices, the host and the command."""
    process = rocprof_profiles.process(
        [rocprof_profiles.dispatch(10 * i, 10 * i + 5, i) for i in range(2)],
        ranges=[("ProfilerStep#1", 1, 60), (f"{secret()} {secret()}", 2, 40), (secret(), 3, 9)],
        host=secret(),
        kernels=[f"void {secret()}<{secret()}>(float)", secret()],
    )
    process["metadata"] |= {"command": secret.command(), secret(): secret()}
    for agent in process["agents"]:
        agent["product_name"] = secret()
    (folder / f"{secret()}_results.json").write_bytes(rocprof_profiles.profile(process))


def plant(secret: Secrets, root: Path, data: Path | None) -> list[Path]:
    """RUN folders that between them hold every format."""
    first, second, third, fourth, fifth = (root / f"{secret()} {secret()}" for _ in range(5))
    for folder in (first, second, third, fourth, fifth):
        folder.mkdir()
    log = darshan_log(secret, data)
    for folder in (first, third):
        user = secret()
        (folder / f"{user}_{secret()}_id4711-100_1-1-1-1_1.darshan").write_bytes(log)
    pytorch_traces.write(first / f"{secret()}.pt.trace.json.gz", pytorch_trace(secret))
    (first / f"events.out.tfevents.{START_S}.{secret()}.1.0").write_bytes(event_file(secret))
    (first / "run.json").write_text(json.dumps(run_record(secret)))
    (first / f"{secret()} {secret()}.darshan").write_bytes(b"no log" * 100)
    (first / f"{secret()}.pt.trace.json").write_text(json.dumps({secret(): secret()}))
    dftracer_trace(secret, second)
    (second / f"{secret()}.pfw").write_text(f'{{"name": "{secret()}", \n')
    xprof_profile(secret, third)
    recorded(secret, fourth)
    recorded_calls(secret, fifth)
    sampled_states(secret, fifth)
    rocprof_profile(secret, fifth)
    return [first, second, third, fourth, fifth, benchmark_result(secret, root)]


def decoded(path: Path) -> str:
    """All that a file says, however it is packed, in small letters."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    texts = [content.decode("utf-8", "replace")]
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
        texts = [content.decode("latin-1"), str(table.schema), str(table.to_pylist())]
    if path.suffix == ".darshan":
        texts = [stream.decode("utf-8", "replace") for stream in _streams(content)]
    if path.suffix in (".json", ".gz"):
        texts.append(json.dumps(json.loads(content), ensure_ascii=False))
    if path.suffix == ".html":
        texts += [_unpacked(run) for run in re.findall(r"[A-Za-z0-9+/]{16,}={0,2}", texts[0])]
    unicode = (text.encode("utf-8", "replace").decode("utf-8") for text in texts)
    return re.sub(
        r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), "\n".join(unicode).lower()
    )  # fmt: skip


def _streams(log: bytes) -> Iterator[bytes]:
    """The inflated streams of a Darshan log, from its job record on."""
    left = log[header_length(Log()) :]
    while left:
        stream = zlib.decompressobj()
        yield stream.decompress(left)
        left = stream.unused_data


def _unpacked(text: str) -> str:
    return base64.b64decode(text[: len(text) // 4 * 4] + "====").decode("latin-1")
