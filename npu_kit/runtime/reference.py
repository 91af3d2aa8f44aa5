"""The plain definition of every operation: whole tensors, no tiles, no tiers.

What the tiled runtime computes is compared with this. Contraction, pooling and softmax are written here a second time,
as simply as they can be said; element-wise operations are the ones of ``arithmetic``. A value always has the dtype that
its node declares, so float16 is rounded and integers wrap after every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from npu_kit.errors import InputError
from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.graph.ops import family_of, find_op
from npu_kit.graph.shapes import FLOATS, integer_range, permutation, spatial_letters, window_extent
from npu_kit.runtime.arithmetic import Array, apply_elementwise, compute_dtype, to_declared


def run_graph(graph: Graph, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """Run every node in order.

    Args:
        graph: a graph that ``verify_graph`` accepts.
        arguments: one array per ``graph.arg_nodes``: the inputs, then the constants.

    Returns:
        one array per ``graph.heads``.

    Raises:
        InputError: the number of arrays, or the shape or dtype of one.
        ZeroDivisionError: an integer divide by 0.
    """
    if len(arguments) != len(graph.arg_nodes):
        raise InputError(graph.symbol, f"it takes {len(graph.arg_nodes)} arrays and got {len(arguments)}")
    values: dict[Entry, Array] = {}
    for index, array in zip(graph.arg_nodes, arguments, strict=True):
        node = graph.nodes[index]
        declared = node.outputs[0]
        if array.shape != declared.shape or array.dtype.name != declared.dtype:
            given = f"{'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype.name}"
            raise InputError(f"{node.kind} {node.name!r} of {graph.symbol}", f"it needs {declared} and got {given}")
        values[Entry(index)] = array
    for index in graph.kernels:
        node = graph.nodes[index]
        values[Entry(index)] = run_node(node, [values[entry] for entry in node.inputs])
    return tuple(values[entry] for entry in graph.heads)


def run_node(node: Node, inputs: Sequence[Array]) -> Array:
    """Run one kernel node on whole tensors; the result has the dtype that the node declares."""
    out_dtype = node.outputs[0].dtype
    if family_of(node.name) == "elementwise":
        return apply_elementwise(node.name, node.attrs, ready_operands(node, inputs), out_dtype)
    with np.errstate(all="ignore"):
        return to_declared(_FUNCTIONS[node.name](node, inputs), out_dtype)


def ready_operands(node: Node, inputs: Sequence[Array]) -> list[Array]:
    """The inputs of an element-wise node, in shapes that broadcast: per-axis parameters stand on their axis."""
    if not find_op(node.name).parameters_on_axis:
        return list(inputs)
    x, *parameters = inputs
    axis: Any = node.attrs["axis"]
    on_axis = (-1, *[1] * (x.ndim - 1 - axis))
    return [x, *(p.reshape(()) if p.size == 1 else p.reshape(on_axis) for p in parameters)]


def _matmul(node: Node, inputs: Sequence[Array]) -> Array:
    compute = compute_dtype(node.outputs[0].dtype)
    return np.asarray(np.matmul(inputs[0].astype(compute), inputs[1].astype(compute)))


def _conv(node: Node, inputs: Sequence[Array]) -> Array:
    """The sum over the taps of the filter of one matrix product over the channels."""
    attrs: Any = node.attrs
    compute = compute_dtype(node.outputs[0].dtype)
    layout, letters, groups = attrs["data_layout"], spatial_letters(attrs["data_layout"]), attrs["groups"]
    x = inputs[0].astype(compute).transpose(permutation(layout, "NC" + letters))
    w = inputs[1].astype(compute).transpose(permutation(attrs["kernel_layout"], letters + "OI"))
    out_shape = [node.outputs[0].shape[axis] for axis in permutation(layout, "NC" + letters)]
    batch, filters, *out_sizes = out_shape
    out = np.zeros((batch, groups, filters // groups, int(np.prod(out_sizes, dtype=int))), compute)
    taps = w.shape[: len(letters)]
    w = w.reshape(*taps, groups, filters // groups, w.shape[-1])
    for tap, window in _windows(_pad(x, attrs, 0), taps, out_sizes, attrs, 0):
        out += np.matmul(w[tap], window.reshape(batch, groups, x.shape[1] // groups, out.shape[-1]))
    return np.asarray(out.reshape(out_shape).transpose(permutation("NC" + letters, layout)))


def _transposed_conv(node: Node, inputs: Sequence[Array]) -> Array:
    """Each tap of the filter puts one matrix product over the channels into the result, strides apart."""
    attrs: Any = node.attrs
    compute = compute_dtype(node.outputs[0].dtype)
    x, w = (array.astype(compute) for array in inputs)  # NCHW and IOHW
    groups, (sy, sx), (dy, dx) = attrs["groups"], attrs["strides"], attrs["dilation"]
    batch, _, height, width = x.shape
    top, left, bottom, right = attrs["padding"]
    rows, columns = node.outputs[0].shape[2:]
    out = np.zeros((batch, groups, w.shape[1], rows + top + bottom, columns + left + right), compute)
    depth = w.shape[0] // groups
    x = x.reshape(batch, groups, depth, height * width)
    w = w.reshape(groups, depth, *w.shape[1:])
    for kh, kw in np.ndindex(w.shape[-2:]):
        product = np.matmul(w[..., kh, kw].transpose(0, 2, 1), x).reshape(*out.shape[:3], height, width)
        out[..., kh * dy : kh * dy + (height - 1) * sy + 1 : sy, kw * dx : kw * dx + (width - 1) * sx + 1 : sx] += (
            product
        )
    return np.asarray(out[..., top : top + rows, left : left + columns].reshape(node.outputs[0].shape))


def _max_pool2d(node: Node, inputs: Sequence[Array]) -> Array:
    """Starts from the lowest finite value, so a window of nothing but padding or -inf gives that."""
    attrs: Any = node.attrs
    dtype = node.outputs[0].dtype
    compute = compute_dtype(dtype)
    lowest = compute.type(np.finfo(dtype).min if dtype in FLOATS else integer_range(dtype)[0])
    x = inputs[0].astype(compute).transpose(permutation(attrs["layout"], "NCHW"))
    out = np.full([node.outputs[0].shape[axis] for axis in permutation(attrs["layout"], "NCHW")], lowest)
    for _, window in _windows(_pad(x, attrs, lowest), attrs["pool_size"], out.shape[2:], attrs, lowest):
        out = np.maximum(out, window)
    return np.asarray(out.transpose(permutation("NCHW", attrs["layout"])))


def _avg_pool2d(node: Node, inputs: Sequence[Array]) -> Array:
    """The sum of a window over the number of its taps on data, or on data and padding with ``count_include_pad``."""
    attrs: Any = node.attrs
    x = inputs[0].astype(np.float32).transpose(permutation(attrs["layout"], "NCHW"))
    out_shape = [node.outputs[0].shape[axis] for axis in permutation(attrs["layout"], "NCHW")]
    total, count = np.zeros(out_shape, np.float32), np.zeros(out_shape[2:], np.float32)
    ones = _pad(np.ones((1, 1, *x.shape[2:]), np.float32), attrs, attrs["count_include_pad"])
    for _, window in _windows(_pad(x, attrs, 0), attrs["pool_size"], out_shape[2:], attrs, 0):
        total += window
    for _, window in _windows(ones, attrs["pool_size"], out_shape[2:], attrs, 0):
        count += window[0, 0]
    # A dilated window can step over all the data: its sum is 0, and so is its average.
    return np.asarray((total / np.maximum(count, 1)).transpose(permutation("NCHW", attrs["layout"])))


def _adaptive_avg_pool2d(node: Node, inputs: Sequence[Array]) -> Array:
    """Windows of one size, side by side: the verified graph has no others."""
    layout: Any = node.attrs["layout"]
    x = inputs[0].astype(np.float32).transpose(permutation(layout, "NCHW"))
    batch, channels, rows, columns = (node.outputs[0].shape[axis] for axis in permutation(layout, "NCHW"))
    windows = x.reshape(batch, channels, rows, x.shape[2] // rows, columns, x.shape[3] // columns)
    return np.asarray(windows.mean((3, 5)).transpose(permutation("NCHW", layout)))


def _softmax(node: Node, inputs: Sequence[Array]) -> Array:
    axis: Any = node.attrs["axis"]
    x = inputs[0].astype(np.float32)
    if x.size == 0:
        return x
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def _log_softmax(node: Node, inputs: Sequence[Array]) -> Array:
    axis: Any = node.attrs["axis"]
    x = inputs[0].astype(np.float32)
    if x.size == 0:
        return x
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def _norm(node: Node, inputs: Sequence[Array]) -> Array:
    """layer_norm, and rms_norm, which takes the mean for 0."""
    attrs: Any = node.attrs
    x, *parameters = (array.astype(np.float32) for array in inputs)
    x = np.moveaxis(x, attrs["axis"], -1)
    if node.name == "layer_norm":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(attrs["epsilon"]))
    if attrs.get("scale", True):
        x = x * parameters[0]
    if attrs.get("center", True) and len(parameters) > 1:
        x = x + parameters[1]
    return np.moveaxis(x, -1, attrs["axis"])


def _reduction(node: Node, inputs: Sequence[Array]) -> Array:
    attrs: Any = node.attrs
    x = inputs[0].astype(compute_dtype(node.outputs[0].dtype))
    reduce: Any = getattr(np, node.name)
    more = {"dtype": x.dtype} if node.name == "sum" else {}
    return np.asarray(reduce(x, attrs["axis"], keepdims=attrs["keepdims"], **more))


def _reshape(node: Node, inputs: Sequence[Array]) -> Array:
    return inputs[0].reshape(node.outputs[0].shape)


def _permute_dims(node: Node, inputs: Sequence[Array]) -> Array:
    axes: Any = node.attrs["axes"]
    return np.asarray(inputs[0].transpose(axes))


def _broadcast_to(node: Node, inputs: Sequence[Array]) -> Array:
    return np.broadcast_to(inputs[0], node.outputs[0].shape)


def _strided_slice(node: Node, inputs: Sequence[Array]) -> Array:
    attrs: Any = node.attrs
    return np.asarray(inputs[0][tuple(map(slice, attrs["begin"], attrs["end"], attrs["strides"]))])


def _pad_around(node: Node, inputs: Sequence[Array]) -> Array:
    attrs: Any = node.attrs
    widths = list(zip(attrs["pad_width"][::2], attrs["pad_width"][1::2], strict=True))
    return np.pad(inputs[0], widths, constant_values=attrs["pad_value"]) if widths else inputs[0]


def _concat(node: Node, inputs: Sequence[Array]) -> Array:
    axis: Any = node.attrs["axis"]
    return np.concatenate(inputs, axis)


def _pad(x: Array, attrs: Any, value: Any) -> Array:
    """``x`` (N, C, spatial..) with ``value`` around it."""
    padding = attrs["padding"]
    axes = len(padding) // 2
    return np.pad(x, [(0, 0), (0, 0), *zip(padding[:axes], padding[axes:], strict=True)], constant_values=value)


def _windows(
    padded: Array, taps: Sequence[int], out_sizes: Sequence[int], attrs: Any, beyond: Any
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each tap of a window, the element it sees at every position of the window: (N, C, spatial output sizes).

    With ``ceil_mode`` the last window may hang over the end of the padding, where it sees ``beyond``.
    """
    dilation, strides = attrs["dilation"], attrs["strides"]
    needed = [s * (n - 1) + window_extent(t, d) for t, d, s, n in zip(taps, dilation, strides, out_sizes, strict=True)]
    hang = [(0, max(0, need - size)) for need, size in zip(needed, padded.shape[2:], strict=True)]
    padded = np.pad(padded, [(0, 0), (0, 0), *hang], constant_values=beyond)
    for tap in np.ndindex(*taps):
        places = zip(tap, dilation, strides, out_sizes, strict=True)
        seen: Any = (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in places))
        yield tap, padded[seen]


_FUNCTIONS: dict[str, Callable[[Node, Sequence[Array]], Array]] = {
    "matmul": _matmul,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv2d_transpose": _transposed_conv,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _norm,
    "rms_norm": _norm,
    "reshape": _reshape,
    "permute_dims": _permute_dims,
    "broadcast_to": _broadcast_to,
    "strided_slice": _strided_slice,
    "pad": _pad_around,
    "concat": _concat,
    "sum": _reduction,
    "mean": _reduction,
    "max": _reduction,
    "min": _reduction,
}
