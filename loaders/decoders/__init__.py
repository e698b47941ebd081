"""Codecs of scientific samples: small on disk and on the bus, decoded where they are used.

container  the file: named arrays in sections, under CRC-32
cosmoflow  tables of groups of particle counts, lossless in log(1 + x) as float16
deepcam    lines as byte differences; their compiled arithmetic is in `deltas`
lossless   labels
coding     codecs by name; encode, decode, decode_batch; how much a lossy one loses
kernels/   decoding on a GPU, in Triton
staging    samples of a batch in one host buffer: read into it, copied from it
convert    from and to TFRecord, HDF5 and NPY
folders    a whole data set encoded
dataset    the loader `decoded`, and batches that a device decodes
dali       the same decoders behind an NVIDIA DALI pipeline
"""

from .coding import (
    CODECS,
    Codec,
    codec_for,
    decode,
    decode_batch,
    decode_sample,
    encode,
    encode_sample,
    find_codec,
    open_sample,
)
from .container import Encoded
from .cosmoflow import CosmoFlow
from .deepcam import DeepCam
from .lossless import Lossless

__all__ = [
    "CODECS",
    "Codec",
    "CosmoFlow",
    "DeepCam",
    "Encoded",
    "Lossless",
    "codec_for",
    "decode",
    "decode_batch",
    "decode_sample",
    "encode",
    "encode_sample",
    "find_codec",
    "open_sample",
]
