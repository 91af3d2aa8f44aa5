"""Single operators and short chains that users of other backends have reported as computed wrong, or not at all.

The name of each says where: executorch# is pytorch/executorch, ort# is microsoft/onnxruntime, tvm# is apache/tvm, and
so on. All of it is computed on the NPU, as TVM's own LLVM build computes it.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import npu_kit

op, nn = relax.op, relax.op.nn
F, I8, I32 = "float32", "int8", "int32"


def chain(*steps):
    """A body that applies one step after the other to its first argument."""

    def body(builder, value, *_):
        for step in steps[:-1]:
            value = builder.emit(step(value))
        return steps[-1](value)

    return body


def quantize(builder, value, scale, zero_point):
    return builder.emit(op.quantize(value, relax.const(scale, F), relax.const(np.int8(zero_point)), -1, I8))


def dequantize(builder, value, scale, zero_point):
    return builder.emit(op.dequantize(value, relax.const(scale, F), relax.const(np.int8(zero_point)), -1, F))


def padded_quantized_conv(builder, x, w):
    product = builder.emit(nn.conv2d(dequantize(builder, x, 0.1, 17), dequantize(builder, w, 0.02, 0), padding=1))
    return quantize(builder, product, 0.87, -3)


def quantized_conv_of_one_channel(builder, x, w):
    x, w = dequantize(builder, x, 0.1, 3), dequantize(builder, w, 0.02, 0)
    return quantize(builder, builder.emit(nn.conv2d(x, w, padding=1)), 0.37, -7)


def grouped_quantized_conv(builder, x, w):
    x, w = dequantize(builder, x, 0.1, 3), dequantize(builder, w, 0.02, 0)
    return quantize(builder, builder.emit(nn.relu(builder.emit(nn.conv2d(x, w, strides=2, groups=4)))), 0.37, -7)


def transposed_quantized_conv(builder, x, w):
    x, w = dequantize(builder, x, 0.1, 3), dequantize(builder, w, 0.02, 0)
    return quantize(builder, builder.emit(nn.conv2d_transpose(x, w, strides=2, padding=1)), 0.23, -4)


def concat_of_two_scales(builder, x, w):
    taken = dequantize(builder, x, 0.1, 3)
    clipped = builder.emit(op.clip(builder.emit(nn.conv2d(taken, dequantize(builder, w, 0.02, 0))), 0, 6))
    again = dequantize(builder, quantize(builder, clipped, 6 / 255, -128), 6 / 255, -128)
    return quantize(builder, builder.emit(op.concat([taken, again], axis=3)), 0.1, 3)


def quantized_between(step, scale_in, zero_in, scale_out, zero_out):
    """dequantize, ``step``, quantize."""

    def body(builder, x):
        result = builder.emit(step(dequantize(builder, x, scale_in, zero_in)))
        return quantize(builder, result, scale_out, zero_out)

    return body


def quantized_three_ways(builder, x, w):
    product = builder.emit(op.matmul(dequantize(builder, x, 0.1, 1), dequantize(builder, w, 0.03, 2)))
    relu = builder.emit(nn.relu(product))
    return relax.Tuple([quantize(builder, relu, 0.053, 0), quantize(builder, relu, 0.21, -7), relu])


def quantized_by_its_maximum(builder, x):
    scale = builder.emit(op.divide(builder.emit(op.max(builder.emit(op.abs(x)))), relax.const(127.0, F)))
    zero_point = relax.const(np.int8(0))
    stored = builder.emit(op.quantize(x, scale, zero_point, -1, I8))
    return op.dequantize(stored, scale, zero_point, -1, F)


def huge_bias(builder, x, w, bias):
    product = builder.emit(op.matmul(dequantize(builder, x, 3e-5, 0), dequantize(builder, w, 1.2e-5, 0)))
    scaled = builder.emit(op.dequantize(bias, relax.const(3.8e-10, F), relax.const(np.int32(0)), -1, F))
    return quantize(builder, builder.emit(op.add(product, scaled)), 0.001, -128)


def read_twice_after_a_transpose(builder, x):
    turned = builder.emit(op.permute_dims(x, [0, 2, 1]))
    return relax.Tuple([builder.emit(op.reshape(turned, (2, 15))), builder.emit(op.sum(turned, axis=1))])


def sum_with_its_own_power(builder, x, w):
    product = builder.emit(op.matmul(x, w))
    return op.add(product, builder.emit(op.power(product, relax.const(2.0, F))))


def residual_that_is_returned(builder, x, w, v):
    first = builder.emit(nn.conv2d(x, w, padding=1))
    second = builder.emit(op.add(builder.emit(nn.conv2d(first, v, padding=1)), first))
    return relax.Tuple([builder.emit(nn.relu(second)), first])


def residual_in_another_layout(builder, x, w, y):
    turned = builder.emit(op.permute_dims(y, [0, 3, 1, 2]))
    return nn.relu(builder.emit(op.add(builder.emit(nn.conv2d(x, w, padding=1)), turned)))


def nested_tuple(builder, x):
    inner = relax.Tuple([builder.emit(op.exp(x)), relax.Tuple([builder.emit(op.tanh(x)), x])])
    return relax.Tuple([builder.emit(nn.relu(x)), inner])


def average(size, strides, padding, **options):
    return lambda b, x: nn.avg_pool2d(x, size, strides, padding, **options)


CEIL = {"ceil_mode": True}
COUNTED = {"ceil_mode": True, "count_include_pad": True}
REPORTS = {  # where it was reported: the body, and shape and dtype of each input
    # windows
    "coremltools#2515": (lambda b, x, w: nn.conv2d(x, w, strides=2, padding=1), ((1, 2, 5, 5), F), ((2, 2, 3, 2), F)),
    "coremltools#1901": (average((7, 7), (4, 4), (3, 3), count_include_pad=True), ((1, 3, 16, 12), F)),
    "coremltools#2772": (average((2, 2), (2, 2), (0, 0), **COUNTED), ((1, 1, 3, 3), F)),
    "iree#24580": (average((5, 5), (3, 3), (1, 1), **COUNTED), ((1, 3, 16, 16), F)),
    "iree#20432": (average((2, 2), (2, 2), (0, 0), **CEIL), ((1, 16, 11, 11), F)),
    "openvino#33369": (average((2, 2), (2, 2), (1, 1), **CEIL), ((1, 3, 17, 17), F)),
    "ort#16203": (average((7, 1), (3, 1), (3, 0, 3, 0), **COUNTED), ((1, 2, 9, 1), F)),
    "onnx#4958": (lambda b, x: nn.max_pool2d(x, (2, 2), (3, 3), **CEIL), ((1, 1, 5, 5), F)),
    "executorch#3567": (lambda b, x: nn.max_pool2d(x, (2, 2), (2, 2), **CEIL), ((1, 4, 23, 23), F)),
    "iree#19339": (lambda b, x, w: nn.conv2d(x, w, padding=3, groups=8), ((1, 8, 14, 14), F), ((8, 1, 7, 7), F)),
    "modular#6129": (lambda b, x, w: nn.conv1d(x, w, padding=64, groups=4), ((1, 24, 40), F), ((24, 6, 128), F)),
    "CMSIS-NN#230": (transposed_quantized_conv, ((1, 8, 4, 4), I8), ((8, 4, 4, 4), I8)),
    "tvm#18635": (
        lambda b, x, w: nn.conv2d_transpose(x, w, strides=2, padding=1, output_padding=1),
        *(((1, 3, 9, 9), F), ((3, 6, 3, 3), F)),
    ),
    "iree#11825": (
        lambda b, x, u, v: nn.conv2d(b.emit(nn.conv2d(x, u, out_dtype=I32)), v, out_dtype=I32),
        *(((1, 1, 4, 4), I32), ((1, 1, 3, 1), I32), ((1, 1, 1, 3), I32)),
    ),
    # products and norms
    "coremltools#2263": (lambda b, x, w: op.matmul(x, w), ((4,), F), ((3, 4, 2), F)),
    "candle#3744": (lambda b, x, w: op.matmul(x, w), ((1, 12, 32), F), ((5, 32, 12), F)),
    "tt-tvm#85": (lambda b, x, w: op.matmul(x, w), ((1, 1, 1, 1, 3, 3), F), ((1, 2, 4, 5, 3, 1), F)),
    "tvm#9911": (lambda b, x, w: op.matmul(x, w), ((4, 2, 5, 6), F), ((1, 2, 6, 3), F)),
    "Tiled-MM#17": (lambda b, x, w: op.matmul(x, w), ((5, 1), F), ((1, 2), F)),
    "tilelang#2537": (lambda b, x, w: op.matmul(x, w), ((16, 40), F), ((40, 104), F)),
    "LiteRT#9277": (
        lambda b, x, w, bias: op.add(b.emit(op.matmul(x, w)), bias),
        *(((2, 5, 8), F), ((8, 6), F), ((2, 1, 6), F)),
    ),
    "ort-qnn#649": (
        lambda b, x, gamma, beta: nn.layer_norm(x, gamma, beta, axes=[1]),
        *(((1, 16, 5, 6), F), ((16,), F), ((16,), F)),
    ),
    "ort#25402": (lambda b, x: nn.log_softmax(x, 1), ((1, 3, 2, 2), F)),
    "ort#15949": (lambda b, x: nn.softmax(x, 1), ((1, 1000, 1, 1), F)),
    # broadcasting and what is only moved
    "LiteRT#8980": (lambda b, x, y: op.subtract(y, x), ((2, 4, 4), F), ((4,), F)),
    "LiteRT#9191": (lambda b, x: op.broadcast_to(x, (2, 4, 3, 5)), ((2, 1, 3, 1), F)),
    "tt-metal#23714": (lambda b, x, y: op.multiply(x, y), ((2, 9, 8, 1, 4, 2), F), ((1, 1, 1, 1, 1, 2), F)),
    "LiteRT#9272": (lambda b, x: nn.pad(x, [0, 0, 1, 1, 0, 0]), ((2, 3, 4), F)),
    "onnx-coreml#568": (
        lambda b, x, y: op.add(b.emit(nn.pad(x, [0, 0, 0, 0, 0, 0, 1, 1])), y),
        *(((1, 1, 8, 6), F), ((1, 1, 8, 8), F)),
    ),
    "onnx-coreml#390": (
        chain(lambda x: op.strided_slice(x, [0], [0], [5]), lambda x: op.strided_slice(x, [2], [0], [-2]), nn.relu),
        ((5, 3, 9), F),
    ),
    "executorch#14169": (lambda b, x: op.permute_dims(x, [0, -1, -2]), ((2, 3, 5), F)),
    "tinygrad#2844": (
        chain(
            *(lambda x: op.permute_dims(x, (1, 2, 0)), lambda x: nn.pad(x, [0, 0, 2, 2, 0, 0])),
            *(lambda x: op.reshape(x, (4, 6, 5, 1)), lambda x: nn.pad(x, [1, 2, 0, 0, 0, 0, 0, 0])),
            *(lambda x: op.reshape(x, (7, 3, 2, 5)), lambda x: op.permute_dims(x, (3, 1, 0, 2))),
        ),
        ((5, 4, 2), F),
    ),
    "tt-metal#33233": (
        chain(
            lambda x: op.permute_dims(x, [0, 2, 3, 1]),
            lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"),
            lambda x: op.permute_dims(x, [0, 3, 1, 2]),
        ),
        ((1, 5, 12, 7), F),
    ),
    "executorch#19152": (read_twice_after_a_transpose, ((2, 3, 5), F)),
    "executorch#16739": (
        chain(
            lambda x: nn.relu(x),
            lambda x: op.permute_dims(x, [0, 2, 3, 1]),
            lambda x: op.reshape(x, (1, 1, 7, 14, 8)),
            lambda x: op.permute_dims(x, [0, 1, 3, 2, 4]),
        ),
        ((1, 8, 7, 14), F),
    ),
    # what is read twice, and what leaves
    "tvm#14350": (sum_with_its_own_power, ((12, 12), F), ((12, 12), F)),
    "tvm#12371": (residual_that_is_returned, ((1, 3, 9, 9), F), ((8, 3, 3, 3), F), ((8, 8, 3, 3), F)),
    "oneDNN#459": (residual_in_another_layout, ((1, 3, 9, 9), F), ((8, 3, 3, 3), F), ((1, 9, 9, 8), F)),
    "tvm#5616": (nested_tuple, ((4, 6), F)),
    # integers
    "tvm#13364": (padded_quantized_conv, ((1, 4, 9, 7), I8), ((6, 4, 3, 3), I8)),
    "executorch#16233": (quantized_conv_of_one_channel, ((1, 1, 6, 6), I8), ((3, 1, 3, 3), I8)),
    "ncnn#1234": (grouped_quantized_conv, ((1, 8, 6, 6), I8), ((12, 2, 3, 3), I8)),
    "executorch#20486": (concat_of_two_scales, ((1, 2, 3, 5), I8), ((2, 2, 1, 1), I8)),
    "ort#21176": (
        quantized_between(lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), 0.1, 4, 0.1, 4),
        ((1, 2, 6, 6), I8),
    ),
    "ort#32132": (quantized_between(lambda x: nn.avg_pool2d(x, (3, 3)), 0.037, 3, 0.029, 5), ((1, 4, 9, 9), I8)),
    "tensorflow#33588": (quantized_between(lambda x: op.mean(x, [-1], True), 0.1, 4, 0.1, 4), ((1, 3, 3, 3), I8)),
    "TIM-VX#266": (quantized_between(lambda x: nn.softmax(x), 0.1, 4, 1 / 256, -128), ((1, 30, 2), I8)),
    "intel/onnxruntime#412": (quantized_three_ways, ((5, 9), I8), ((9, 7), I8)),
    "ort#4032": (quantized_by_its_maximum, ((5, 9), F)),
    "XNNPACK#3693": (huge_bias, ((5, 9), I8), ((9, 8), I8), ((8,), I32)),
}
SIZES = {I8: 128, I32: 2000}


def assert_same(found, wanted):
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    elif wanted.dtype == I8:  # half-way between two integers the order of a sum decides
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        apart = np.abs(found.astype(int) - wanted)
        assert apart.max() <= 1 and (apart > 0).sum() <= max(1, apart.size // 100)
    else:
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", list(REPORTS))
def test_a_reported_operator_is_right_on_the_npu(name, make_model, run_on_host, rng):
    body, *types = REPORTS[name]
    mod = make_model(body, **{f"x{k}": type_ for k, type_ in enumerate(types)})
    arrays = [
        np.asarray(
            rng.standard_normal(shape) if dtype == F else rng.integers(-SIZES[dtype], SIZES[dtype], shape)
        ).astype(dtype)
        for shape, dtype in types
    ]
    wanted = run_on_host(mod, *arrays)
    for options in ({}, {"mode": "step", "tile": 8, "merge": "never"}):
        model = npu_kit.compile(mod, **options)
        assert not [call.op for call in model.partition.report.on_host if call.op != "relax.reshape"]
        assert_same(model.run(*arrays), wanted)
