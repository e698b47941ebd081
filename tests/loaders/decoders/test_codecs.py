"""What every codec of the registry keeps."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")


from vanidl_loaders.decoders import (
    CODECS,
    decode,
    decode_batch,
    decode_sample,
    encode,
    encode_sample,
    find_codec,
    kernels,
    open_sample,
)
from vanidl_loaders.decoders.kernels import KERNELS, find_kernel
from vanidl_loaders.decoders.staging import HostBuffer, stage_rows
from vanidl_loaders.errors import InputError, UsageError

NAMES = sorted(CODECS)


@pytest.fixture(params=NAMES)
def pairs(request, examples):
    return examples[request.param]


def test_each_codec_has_a_kernel_and_examples(examples):
    assert set(CODECS) == set(KERNELS) == set(examples)


@pytest.mark.parametrize("name", NAMES)
def test_a_codec_is_a_frozen_record_of_its_settings(name):
    codec = CODECS[name]()
    assert name == codec.NAME
    assert codec == CODECS[name]()
    for each in fields(codec):
        with pytest.raises(FrozenInstanceError):
            setattr(codec, each.name, 1)


def test_the_header_says_what_comes_back(pairs):
    for codec, array in pairs:
        (encoded,) = open_sample(encode(array, codec)).values()
        decoded = decode(encode(array, codec), device="cpu")
        assert encoded.source.shape == array.shape
        assert encoded.source.dtype == array.dtype.str
        assert encoded.decoded.shape == tuple(decoded.shape)
        assert encoded.decoded.dtype == decoded.numpy().dtype.str


def test_encoding_twice_and_repacking_give_the_same_bytes(pairs):
    from vanidl_loaders.decoders.container import pack, unpack

    for codec, array in pairs:
        content = encode(array, codec)
        assert content == encode(array.copy(), codec)
        assert content == pack(unpack(content))


def test_any_number_of_threads_gives_the_same(pairs, bits):
    for codec, array in pairs:
        encoded = open_sample(encode(array, codec))
        found = [decode_batch([encoded], device="cpu", threads=n)["array"] for n in (1, 2, 5)]
        assert bits(found[0]) == bits(found[1]) == bits(found[2])


def test_out_is_filled_and_returned(pairs, bits):
    for codec, array in pairs:
        content = encode(array, codec)
        wanted = decode(content, device="cpu")
        out = torch.full_like(wanted, 1)
        assert decode(content, out).data_ptr() == out.data_ptr()
        assert bits(out) == bits(wanted)
        for wrong in (out[None], out.to(torch.complex64), out.to("meta")):
            with pytest.raises(UsageError, match="expected out"):
                decode(content, wrong, device="cpu")


def test_a_batch_is_its_samples_stacked(pairs, bits):
    for codec, array in pairs:
        arrays = [array, array[::-1].copy(), array]
        contents = [encode(each, codec) for each in arrays]
        batch = decode_batch([open_sample(each) for each in contents], device="cpu")["array"]
        for found, content in zip(batch, contents, strict=True):
            assert bits(found) == bits(decode(content, device="cpu"))


def test_a_tensor_speaks_dlpack(pairs, bits):
    for codec, array in pairs:
        tensor = decode(encode(array, codec), device="cpu")
        assert bits(np.from_dlpack(tensor)) == bits(tensor)


def test_a_source_in_any_memory_layout_gives_the_same(pairs):
    for codec, array in pairs:
        content = encode(array, codec)
        assert content == encode(np.asfortranarray(array), codec)
        assert content == encode(np.repeat(array, 2, 0)[::2], codec)


@pytest.mark.parametrize("name", NAMES)
def test_sections_that_contradict_the_shape_are_refused(name, examples):
    from dataclasses import replace

    for codec, array in examples[name]:
        encoded = codec.encode(array)
        shape = encoded.decoded.shape
        longer = replace(encoded.decoded, shape=(*shape[:-1], shape[-1] + 10_000))
        broken = [replace(encoded, decoded=longer)]
        for key in encoded.sections:
            left = {k: v for k, v in encoded.sections.items() if k != key}
            broken.append(replace(encoded, sections=left))
            if len(encoded.sections[key]):
                cut = encoded.sections | {key: encoded.sections[key][:-1]}
                broken.append(replace(encoded, sections=cut))
                other = encoded.sections | {key: encoded.sections[key].astype(np.complex64)}
                broken.append(replace(encoded, sections=other))
        for each in broken:
            with pytest.raises(InputError, match="in the container"):
                CODECS[name].decode(each, np.empty(each.decoded.shape, each.decoded.dtype))


def staged(kernel, samples):
    return stage_rows(HostBuffer(), [kernel.columns(each) for each in samples])


def test_kernels_give_the_bits_of_the_cpu(pairs, device, bits):
    pytest.importorskip("triton", reason="triton is not installed")
    for codec, array in pairs:
        samples = [open_sample(encode(each, codec))["array"] for each in (array, array[::-1])]
        wanted = decode_batch([{"array": each} for each in samples], device="cpu")["array"]
        kernel = find_kernel(codec.NAME)
        for fill in (
            kernels.decode,
            lambda s, out, k=kernel: k.reference(staged(k, s).to(device), out),
        ):
            out = torch.full_like(wanted, 1, device=device)
            fill(samples, out)
            assert bits(out) == bits(wanted)


def test_samples_hold_several_arrays_each_with_its_codec(examples, bits):
    chosen = {name: pairs[0] for name, pairs in examples.items()}
    content = encode_sample(
        {name: array for name, (_, array) in chosen.items()},
        {name: codec for name, (codec, _) in chosen.items()},
    )
    decoded = decode_sample(content, device="cpu")
    assert list(decoded) == list(chosen)
    for name, (codec, array) in chosen.items():
        assert bits(decoded[name]) == bits(decode(encode(array, codec), device="cpu"))
    with pytest.raises(InputError, match="one array"):
        decode(content, device="cpu")


def test_what_cannot_be_asked_is_refused(examples):
    from vanidl_loaders.decoders import Lossless

    with pytest.raises(UsageError, match="cosmoflow"):
        find_codec("nothing")
    with pytest.raises(UsageError, match="found one for"):
        encode_sample({"a": np.zeros(3)}, {"b": Lossless()})
    with pytest.raises(UsageError, match="at least one sample"):
        decode_batch([])
    one = open_sample(encode(np.zeros((2, 4), np.int16)))
    other = open_sample(encode(np.zeros((3, 4), np.int16)))
    with pytest.raises(InputError, match="alike"):
        decode_batch([one, other], device="cpu")
    for bad in (np.array(["a"]), np.zeros(3, np.complex64)):
        with pytest.raises(UsageError, match="expected numbers"):
            encode(bad, Lossless())


def test_the_codec_follows_the_array_where_none_is_named():
    from vanidl_loaders.decoders import CosmoFlow, DeepCam, Lossless, codec_for

    assert codec_for(np.zeros((2, 2, 2, 4), np.int16)) == CosmoFlow()
    assert codec_for(np.zeros((3, 4, 16), np.float32), "climate/data") == DeepCam()
    first = DeepCam(channels="first")
    assert codec_for(np.zeros((16, 3, 4), np.float32), "climate/data") == first
    for other in (np.zeros((2, 4), np.uint8), np.zeros(4, np.float32), np.zeros((2, 5), np.int64)):
        assert codec_for(other) == Lossless()


@pytest.mark.parametrize("shape", [(3, 5), (16, 3, 4), (3, 4, 16)])
def test_floats_of_an_unknown_kind_keep_every_bit_and_their_axes(shape):
    values = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    decoded = decode_sample(encode_sample({"target": values}), device="cpu")["target"]
    assert np.array_equal(decoded.numpy(), values)


@pytest.mark.parametrize("value", [np.int64(7), np.float32(-0.5), np.uint8(255), np.bool_(True)])
def test_a_scalar_comes_back(value):
    samples = [open_sample(encode_sample({"label": np.asarray(value)}))] * 3
    decoded = decode_batch(samples, device="cpu")["label"]
    assert decoded.tolist() == [value.item()] * 3
