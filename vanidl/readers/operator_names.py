"""Names of operators and kernels that say what a loop is doing, whichever profiler wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vanidl.errors import UsageError
from vanidl.model.trace import SpanKind

BACKWARD = re.compile(r"autograd::engine::evaluate_function")
"""Beginning of the names of operators of a backward pass."""

SAMPLING = re.compile(
    r"(aten::)?(empty|empty_strided|random_|item|_local_scalar_dense|randperm|multinomial|randint"
    r"|scalar_tensor|to|_to_copy|copy_|resize_|set_|select|as_strided|unbind|detach|detach_"
    r"|resolve_conj|resolve_neg)"
)
"""Operators with which a loader draws its seed and its order: they are no training."""

_DEVICE_COPY = re.compile(r"memcpy|memset|__amd_rocclr_(fill|copy)Buffer", re.IGNORECASE)
COLLECTIVES: dict[str, str] = {
    r"[nr]ccl": "NVIDIA/nccl and ROCm/rccl, src/device",
    r"deep_ep::": "deepseek-ai/DeepEP, csrc/kernels: internode, intranode, internode_ll",
    r"cross_device_reduce": "vllm-project/vllm, csrc/custom_all_reduce.cuh",
    r"(multimem|one_shot|two_shot)_(all_reduce|all_gather)": "pytorch/pytorch, "
    "torch/csrc/distributed/c10d/CUDASymmetricMemoryOps.cu",
    r"(one|two)shot_?all_?reduce": "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels",
    r"allreduce_fusion": "flashinfer-ai/flashinfer, include/flashinfer/comm",
    r"oneccl": "uxlfoundation/oneCCL, src/coll/algorithms",
    r"hcom_|hccl": "Ascend's HCCL",
    r"mscclpp?": "microsoft/mscclpp",
    r"(nv|roc)shmem": "NVIDIA's NVSHMEM and ROCm/rocSHMEM",
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all": "names of the collectives themselves",
}
"""Names of kernels that communicate, and whose they are: one table for all devices."""

_DEVICE_COLLECTIVE = re.compile("|".join(COLLECTIVES), re.IGNORECASE)


def device_kind(name: str) -> SpanKind:
    """What work on a device is, by the name of its kernel: COPY, COMMUNICATION or KERNEL."""
    if _DEVICE_COPY.match(name):
        return SpanKind.COPY
    return SpanKind.COMMUNICATION if _DEVICE_COLLECTIVE.search(name) else SpanKind.KERNEL


def compile_wait_names(own: Sequence[str], known: Sequence[str] = ()) -> list[re.Pattern[str]]:
    """Patterns for names of input waits: `known`, for whole names, and the user's `own`.

    Raises:
        UsageError: One of `own` is no regular expression.
    """
    try:
        searched = [re.compile(name) for name in own]
    except re.error as error:
        raise UsageError(
            f"a name of input waits must be a regular expression, found {error.pattern!r} "
            f"({error}); put a backslash before characters that stand for themselves"
        ) from error
    return [re.compile(rf"(?:{name})\Z") for name in known] + searched
