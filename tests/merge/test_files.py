"""File codes: of logs that share their names, as of others, those of the paths one by one."""

from __future__ import annotations

import numpy as np

from tests.makers.records import darshan_log
from vanidl.merge.files import FileCodes, path_of


def test_codes_of_ids_are_those_of_their_paths() -> None:
    shared = {id_: f"/data/{id_ % 7}" for id_ in range(20)}
    others = [{id_: f"/data/{(id_ + i) % 7}" for id_ in range(20)} for i in range(80)]
    logs = [darshan_log([], names=names) for names in (shared, shared, *others)]
    codes = FileCodes(sorted(set(shared.values())))
    rng = np.random.default_rng(0)
    for log in [*logs, *logs]:
        ids = rng.integers(0, 20, 5).astype(np.uint64)
        assert codes.of_ids(log, ids).tolist() == [codes[path_of(log, i)] for i in ids.tolist()]
