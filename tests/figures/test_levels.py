from __future__ import annotations

import base64

import numpy as np

from vanidl.figures import downsample


def test_levels_travel_as_exact_whole_numbers():
    amounts = np.array([[0, 1, 255, 256], [2**31, 2**40 + 1, 2**53 - 1, 7]], np.int64)
    found = downsample.build_levels(np.linspace(0, 2, 5), (amounts,), 1)
    (packed,) = downsample.pack_levels(found)["series"]
    raw = base64.b64decode(packed["data"])
    assert len(raw) == packed["rows"] * 4 * packed["bytes"] == 8 * 7
    back = [int.from_bytes(raw[i : i + 7], "little") for i in range(0, len(raw), 7)]
    assert back == amounts.ravel().tolist()
