"""What the loaders of `loaders` would do to this run, predicted from its trace."""

from __future__ import annotations

from vanidl.advice.facts import Facts
from vanidl.advice.finding import Value

BUFFERS = (0.25, 0.5, 1.0)
EXCHANGED = 0.1
CODEC_RATIOS = {"cosmoflow": 3.7, "deepcam": 3.5}
"""Original bytes / encoded bytes, measured on synthetic samples (README, Decoders)."""


def predict_scheduled(facts: Facts) -> dict[str, Value] | None:
    """Bytes that scheduled buffering would not read again, by size of all ranks' buffers.

    A plan reads N samples in the first epoch and N - C in each later one, C being what the
    buffers hold (loaders.scheduled.plan): of what was read again, C / N is saved. None where the
    unique bytes were not recorded, or nothing was read again.
    """
    data = facts.results.dataset
    if data is None or not data.unique_bytes or data.bytes_read <= data.unique_bytes:
        return None
    again = data.bytes_read - data.unique_bytes
    rows: dict[str, Value] = {
        f"{share:.0%}": {
            "buffer_bytes_a_rank": round(share * data.unique_bytes / max(len(data.ranks), 1)),
            "bytes_not_read": round(share * again),
            "share_of_all_reads": share * again / data.bytes_read,
        }
        for share in BUFFERS
    }
    return {"loader": "scheduled", "at_buffer_of_different_bytes": rows}


def predict_pls(facts: Facts) -> dict[str, Value] | None:
    """Storage and exchange of partial local shuffling with a tenth exchanged each epoch.

    A rank stores at most (1 + Q) N / M, reads nothing from shared storage after the first
    epoch, and sends Q N / M an epoch (Nguyen et al., IPDPS 2022).
    """
    data = facts.results.dataset
    if data is None or not data.unique_bytes or len(data.ranks) < 2:
        return None
    part = data.unique_bytes / len(data.ranks)
    return {
        "loader": "pls",
        "exchanged_fraction": EXCHANGED,
        "stored_bytes_a_rank": round((1 + EXCHANGED) * part),
        "exchanged_bytes_a_rank_and_epoch": round(EXCHANGED * part),
        "shared_storage_bytes_not_read": max(data.bytes_read - data.unique_bytes, 0),
    }


def predict_spatial(facts: Facts) -> dict[str, Value] | None:
    """Bytes a rank reads where each reads only its slab of every sample."""
    data = facts.results.dataset
    if data is None or len(data.ranks) < 2:
        return None
    ranks = len(data.ranks)
    return {
        "loader": "spatial",
        "bytes_a_rank_now": max(r.bytes_read for r in data.ranks),
        "bytes_a_rank_then": round(sum(r.bytes_read for r in data.ranks) / ranks**2),
    }


def predict_encoded(facts: Facts) -> dict[str, Value] | None:
    """Bytes to read were the samples encoded, at each codec's ratio."""
    data = facts.results.dataset
    if data is None or not data.bytes_read:
        return None
    return {
        "loader": "decoded",
        "bytes_read_now": data.bytes_read,
        "bytes_read_then": {n: round(data.bytes_read / r) for n, r in CODEC_RATIOS.items()},
    }
