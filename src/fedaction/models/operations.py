"""Which of torch's operations a program may use: pure ones, that draw nothing and whose shapes follow from shapes."""

# torch's operators have no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_MORE = frozenset(
    [
        "linear.default",
        "conv1d.default",
        "conv2d.default",
        "conv3d.default",
        "conv1d.padding",
        "conv2d.padding",
        "conv3d.padding",
        "conv_transpose1d.default",
        "conv_transpose2d.input",
        "conv_transpose3d.input",
        "gru.input",
        "lstm.input",
        "rnn_tanh.input",
        "rnn_relu.input",
        "scaled_dot_product_attention.default",
        "layer_norm.default",
        "group_norm.default",
        "batch_norm.default",
        "instance_norm.default",
        "rms_norm.default",
        "einsum.default",
        "matmul.default",
        "dot.default",
        "mv.default",
        "baddbmm.default",
        "addbmm.default",
        "outer.default",
        "flatten.using_ints",
        "unflatten.int",
        "reshape.default",
        "transpose.int",
        "t.default",
        "contiguous.default",
        "chunk.default",
        "split.Tensor",
        "split.sizes",
        "unbind.int",
        "stack.default",
        "movedim.int",
        "movedim.intlist",
        "expand_as.default",
        "unfold.default",
        "squeeze.default",
        "roll.default",
        "tile.default",
        "index.Tensor",
        "narrow.int",
        "view_as.default",
        "swapaxes.default",
        "concat.default",
        "hstack.default",
        "repeat_interleave.self_int",
        "select.int",
        "softmax.int",
        "log_softmax.int",
        "glu.default",
        "logsumexp.default",
        "cumprod.default",
        "sum.default",
        "mean.default",
        "max.default",
        "min.default",
        "amax.default",
        "norm.ScalarOpt_dim",
        "linalg_vector_norm.default",
        "std.dim",
        "std.correction",
        "var.dim",
        "var_mean.correction",
        "std_mean.correction",
        "all.dim",
        "all.default",
        "max_pool1d.default",
        "max_pool2d.default",
        "max_pool3d.default",
        "avg_pool1d.default",
        "avg_pool2d.default",
        "avg_pool3d.default",
        "adaptive_avg_pool1d.default",
        "adaptive_avg_pool2d.default",
        "adaptive_avg_pool3d.default",
        "adaptive_max_pool1d.default",
        "adaptive_max_pool2d.default",
        "pad.default",
        "to.dtype",
        "to.dtype_layout",
        "type_as.default",
        "zeros.default",
        "ones.default",
        "zeros_like.default",
        "ones_like.default",
        "new_zeros.default",
        "new_ones.default",
        "new_full.default",
        "arange.default",
        "arange.start",
        "linspace.default",
        "eye.default",
        "tril.default",
        "triu.default",
        "masked_fill.Scalar",
        "masked_fill.Tensor",
        "where.ScalarOther",
        "where.ScalarSelf",
        "where.Scalar",
        "addmm.default",
        "upsample_linear1d.vec",
        "upsample_nearest1d.vec",
        "upsample_bilinear2d.vec",
        "upsample_nearest2d.vec",
        "embedding.default",
        "one_hot.default",
        "cosine_similarity.default",
        "prelu.default",
        "selu.default",
        "relu6.default",
    ]
)
"""Operations that are not torch's core ones; larger ones, such as a whole recurrent layer, are fast as they are."""

_BANNED = frozenset(("as_strided", "empty", "empty_strided", "_embedding_bag", "sym_storage_offset"))
"""Core operations that give whatever is in memory, or read a tensor's memory in an order of their own."""

_TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

FIXED: dict[str, tuple[str, Any]] = {
    "batch_norm.default": ("training", False),
    "instance_norm.default": ("use_input_stats", True),
    **dict.fromkeys(("gru.input", "lstm.input", "rnn_tanh.input", "rnn_relu.input"), ("train", False)),
    "scaled_dot_product_attention.default": ("dropout_p", 0.0),
}
"""Arguments that may have one value only: nothing is drawn, and no statistic is changed."""


@cache
def find_operation(name: str) -> Any:
    """The operation with a name such as "conv2d.default", or None where no program may use it."""
    packet, _, overload = name.partition(".")
    try:
        operation = getattr(getattr(torch.ops.aten, packet), overload)
        tags, schema = operation.tags, operation._schema
    except (AttributeError, RuntimeError):
        return None
    if packet in _BANNED or packet.endswith("_backward") or schema.is_mutable:
        return None
    if name in _MORE:
        return operation
    pure = not any(tag in tags for tag in _TAGS)
    return operation if pure and (torch.Tag.core in tags or torch.Tag.pointwise in tags) else None


@cache
def makes_tensors(name: str) -> bool:
    """Whether an operation makes tensors of nothing but sizes, and so must be told where."""
    arguments = find_operation(name)._schema.arguments
    return any(a.name == "device" for a in arguments) and not any("Tensor" in str(a.type) for a in arguments)


def name_of(operation: Any) -> str:
    """An operation's name, as `find_operation` takes it; with its library's, where that is not torch's own."""
    name = str(operation)
    return name.removeprefix("aten.")


def functional_form(operation: Any) -> Any:
    """What an operation that changes its first argument in place would be otherwise, or None."""
    packet, _, overload = name_of(operation).partition(".")
    if not packet.endswith("_") or packet.endswith("__"):
        return None
    return getattr(getattr(torch.ops.aten, packet[:-1], None), overload, None)
