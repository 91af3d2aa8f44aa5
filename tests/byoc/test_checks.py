"""Every reason for a refusal, just inside and just outside of its border."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard

from npu_kit.byoc.partition import partition
from npu_kit.byoc.patterns import Match, accept, collect_refusals
from npu_kit.byoc.patterns.call_checks import dtypes_of
from npu_kit.byoc.patterns.checks import check_leak
from npu_kit.byoc.report import RULES, Refusal
from npu_kit.graph.verify import MAX_RANK
from npu_kit.hw.presets import load_spec

op, nn = relax.op, relax.op.nn
IMAGE = (1, 4, 6, 6)


@pytest.fixture
def offload(make_model):
    """``offload(operation, x=..., ...)``: the report of the model that is this one operation."""

    def run(operation, spec="example", **inputs):
        model = make_model(lambda builder, *given: operation(*given), **inputs)
        report = partition(model, spec).report
        return report[len(report) - 1]

    return run


def refused_by(call):
    """Rules of the refusals, if the call stayed on the host."""
    assert call.where == "host"
    return {refusal.rule for _, refusal in call.refusals}


def of(dtype, shape=(2, 5)):
    return (shape, dtype)


# --- dtype ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "int16", "uint16", "int32"])
def test_dtypes_of_the_machine_are_taken(offload, dtype):
    assert offload(op.add, x=of(dtype), y=of(dtype)).where == "npu"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int64", "uint32", "bool", "float8_e4m3fn"])
def test_other_dtypes_are_refused(offload, dtype):
    call = offload(nn.relu if dtype != "bool" else lambda x: op.add(x, x), x=of(dtype))
    assert refused_by(call) == {"dtype"}
    assert dtype in call.reason and call.reason.count("dtype:") == 1


def test_dtypes_follow_the_machine(offload):
    floats = load_spec().replace(dtypes=("float32",))
    assert dtypes_of(floats) == ("float32",)
    assert offload(nn.relu, floats, x=of("float32")).where == "npu"
    assert refused_by(offload(nn.relu, floats, x=of("int8"))) == {"dtype"}
    integers = load_spec().replace(dtypes=("int8",))
    assert dtypes_of(integers) == ("int8", "uint8", "int32")
    assert offload(nn.relu, integers, x=of("uint8")).where == "npu"
    assert refused_by(offload(nn.relu, integers, x=of("int16"))) == {"dtype"}


def test_an_operation_of_floats_asks_a_machine_of_integers_for_another_machine(offload):
    integers = load_spec().replace(dtypes=("int8",))
    call = offload(nn.softmax, integers, x=of("float32"))
    assert call.reason.startswith(
        "example_npu.softmax refused it, dtype: needs a machine with float16 or float32 for x of softmax, "
        "found one with int8, uint8 and int32 (try: another machine, or leave it on the host)"
    )
    (_, first), *_ = offload(nn.softmax, integers, x=of("float64")).refusals
    assert first.needed == "a machine with float16 or float32 for x of softmax"


def test_result_dtype_counts_too(offload):
    inputs = {"x": of("int8", (2, 4)), "w": of("int8", (4, 3))}
    assert offload(lambda x, w: op.matmul(x, w, out_dtype="int32"), **inputs).where == "npu"
    assert "dtype" in refused_by(offload(lambda x, w: op.matmul(x, w, out_dtype="int64"), **inputs))


def test_mixed_integers_need_an_output_dtype_of_the_machine(offload):
    inputs = {"x": of("uint8", (2, 4)), "w": of("int8", (4, 3))}
    assert offload(lambda x, w: op.matmul(x, w, out_dtype="int32"), **inputs).where == "npu"


def test_integer_average_is_refused_and_integer_maximum_is_not(offload):
    image = {"x": of("int8", IMAGE)}
    assert refused_by(offload(lambda x: nn.avg_pool2d(x, (2, 2)), **image)) == {"dtype"}
    assert offload(lambda x: nn.max_pool2d(x, (2, 2)), **image).where == "npu"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantize_to_the_four_integer_dtypes(offload, dtype):
    zero = relax.const(0, "int32" if dtype.endswith("16") else dtype)
    call = offload(lambda x: op.quantize(x, relax.const(0.1), zero, out_dtype=dtype), x=of("float32"))
    assert call.where == "npu"


def test_quantize_to_float8_is_refused(offload):
    zero = relax.const(0, "int8")
    call = offload(lambda x: op.quantize(x, relax.const(0.1), zero, out_dtype="float8_e4m3fn"), x=of("float32"))
    assert refused_by(call) == {"dtype"}


# --- shape ------------------------------------------------------------------------------------------------------------


def test_rank(offload):
    assert offload(nn.relu, x=of("float32", (1,) * MAX_RANK)).where == "npu"
    call = offload(nn.relu, x=of("float32", (1,) * (MAX_RANK + 1)))
    assert refused_by(call) == {"shape"}
    assert f"{MAX_RANK + 1} axes" in call.reason


def test_symbolic_and_unknown_shapes_are_refused(offload):
    call = offload(nn.relu, x=relax.TensorType((tirx.Var("n", "int64"), 4), "float32"))
    assert refused_by(call) == {"shape"} and "nx4 float32" in call.reason
    call = offload(nn.relu, x=relax.TensorType(ndim=2, dtype="float32"))
    assert refused_by(call) == {"shape"} and "2 axes" in call.reason
    assert refused_by(offload(nn.relu, x=relax.TensorType(None, "float32"))) == {"shape"}


def test_unknown_dtype_is_refused(offload):
    assert "dtype" in refused_by(offload(nn.relu, x=relax.TensorType((2, 3), None)))


def test_scalars_and_empty_tensors_are_taken_where_the_result_is_defined(offload):
    assert offload(nn.relu, x=of("float32", ())).where == "npu"
    assert offload(op.add, x=of("float32", (0, 3)), y=of("float32", (3,))).where == "npu"
    assert offload(op.matmul, x=of("float32", (2, 0)), y=of("float32", (0, 3))).where == "npu"
    weights = of("float32", (6, 0, 3, 3))
    assert offload(lambda x, w: nn.conv2d(x, w), x=of("float32", (1, 0, 8, 8)), w=weights).where == "npu"


def test_window_and_softmax_of_nothing_are_refused(offload):
    assert refused_by(offload(nn.softmax, x=of("float32", (2, 0)))) == {"shape"}
    empty = of("float32", (1, 0, 6, 6))
    assert refused_by(offload(lambda x: nn.max_pool2d(x, (2, 2)), x=empty)) == {"shape"}
    assert offload(nn.softmax, x=of("float32", (2, 1))).where == "npu"


def test_kernel_larger_than_the_padded_data_is_refused(offload):
    fits, larger = of("float32", (4, 4, 8, 3)), of("float32", (4, 4, 9, 3))
    convolve = lambda x, w: nn.conv2d(x, w, padding=1)  # noqa: E731
    assert offload(convolve, x=of("float32", IMAGE), w=fits).where == "npu"
    # Relax gives size 0 to a window one too large, and negative sizes beyond.
    assert refused_by(offload(convolve, x=of("float32", IMAGE), w=larger)) == {"shape"}
    assert refused_by(offload(convolve, x=of("float32", IMAGE), w=of("float32", (4, 4, 20, 3)))) == {"shape"}


# --- attribute --------------------------------------------------------------------------------------------------------

CONV = {"x": of("float32", IMAGE), "w": of("float32", (4, 4, 3, 3))}
POOL = {"x": of("float32", IMAGE)}


@pytest.mark.parametrize(
    ("taken", "refused", "inputs"),
    [
        (lambda x, w: nn.conv2d(x, w, padding=0), lambda x, w: nn.conv2d(x, w, padding=-1), CONV),
        (lambda x, w: nn.conv2d(x, w, dilation=1), lambda x, w: nn.conv2d(x, w, dilation=0), CONV),
        (lambda x, w: nn.conv2d(x, w, out_layout="NCHW"), lambda x, w: nn.conv2d(x, w, out_layout="NHWC"), CONV),
        (lambda x: nn.max_pool2d(x, (1, 1)), lambda x: nn.max_pool2d(x, (0, 1)), POOL),
        (lambda x: nn.max_pool2d(x, (2, 2), padding=0), lambda x: nn.max_pool2d(x, (2, 2), padding=-1), POOL),
        (lambda x: nn.max_pool2d(x, (2, 2)), lambda x: nn.max_pool2d(x, (2, 2), dilation=0), POOL),
        (
            lambda x: nn.max_pool2d(x, (2, 2), out_layout="NCHW"),
            lambda x: nn.max_pool2d(x, (2, 2), out_layout="NHWC"),
            POOL,
        ),
        (lambda x: nn.avg_pool2d(x, (3, 2), padding=1), lambda x: nn.avg_pool2d(x, (3, 2), padding=2), POOL),
        (lambda x: op.clip(x, -1e30, 6), lambda x: op.clip(x, -float("inf"), 6), POOL),
        (lambda x: op.clip(x, 0, 6), lambda x: op.clip(x, 0, float("nan")), POOL),
    ],
    ids=[
        "padding",
        "dilation",
        "out_layout",
        "pool_size",
        "pool_padding",
        "pool_dilation",
        "pool_out_layout",
        "padding_and_window",
        "clip_inf",
        "clip_nan",
    ],
)
def test_attributes(offload, taken, refused, inputs):
    assert offload(taken, **inputs).where == "npu"
    assert refused_by(offload(refused, **inputs)) == {"attribute"}


def test_a_norm_over_two_axes_is_told_that_it_takes_one(offload):
    inputs = {"x": of("float32", (2, 3, 4)), "gamma": of("float32", (3, 4)), "beta": of("float32", (3, 4))}
    call = offload(lambda x, gamma, beta: nn.layer_norm(x, gamma, beta, axes=[1, 2]), **inputs)
    assert refused_by(call) == {"attribute"}
    assert "needs layer_norm along one axis, found (1, 2) (try: reshapes that make one axis of several" in call.reason


def test_clip_bounds_of_an_integer_are_values_of_its_dtype(offload):
    assert offload(lambda x: op.clip(x, 0, 127), x=of("int8")).where == "npu"
    assert refused_by(offload(lambda x: op.clip(x, 0, 128), x=of("int8"))) == {"attribute"}
    assert refused_by(offload(lambda x: op.clip(x, 0.5, 6), x=of("int8"))) == {"attribute"}


def test_blocked_layouts_are_refused(offload):
    blocked = {"x": of("float32", (1, 1, 8, 8, 4)), "w": of("float32", (4, 4, 3, 3))}
    call = offload(lambda x, w: nn.conv2d(x, w, data_layout="NCHW4c"), **blocked)
    assert refused_by(call) == {"attribute"}
    assert "NCHW4c" in call.reason


@pytest.mark.parametrize(("data", "kernel"), [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NHWC", "HWOI")])
def test_layouts_of_the_kit_are_taken(offload, data, kernel):
    size = {"N": 1, "C": 4, "O": 4, "I": 4, "H": 6, "W": 6}
    x = tuple(size[letter] for letter in data)
    w = tuple(3 if letter in "HW" else size[letter] for letter in kernel)
    convolve = lambda x, w: nn.conv2d(x, w, data_layout=data, kernel_layout=kernel)  # noqa: E731
    assert offload(convolve, x=of("float32", x), w=of("float32", w)).where == "npu"


def test_batch_norm_that_trains_is_refused(offload):
    inputs = {"x": of("float32", IMAGE), **{key: of("float32", (4,)) for key in "gbmv"}}
    assert offload(lambda x, *p: nn.batch_norm(x, *p, axis=1, training=False), **inputs).where == "npu"
    call = offload(lambda x, *p: nn.batch_norm(x, *p, axis=1), **inputs)
    assert refused_by(call) == {"attribute"}
    assert "training" in call.reason


def test_relu6_is_the_clip_from_0_to_6(offload):
    assert offload(lambda x: op.clip(x, 0, 6), **POOL).pattern == "example_npu.relu6"
    for low, high in ((0, 6.5), (-1, 6), (0, 5)):
        assert offload(lambda x, low=low, high=high: op.clip(x, low, high), **POOL).pattern == "example_npu.clip"


def test_depthwise_has_one_group_for_each_of_several_channels(offload):
    image = of("float32", IMAGE)

    def pattern(groups, x=image, out=4):
        channels = x[0][1]
        weights = of("float32", (out, channels // groups, 3, 3))
        return offload(lambda x, w: nn.conv2d(x, w, groups=groups), x=x, w=weights).pattern

    assert pattern(4) == pattern(4, out=8) == "example_npu.depthwise_conv2d"
    assert pattern(2) == pattern(1) == "example_npu.conv2d"
    assert pattern(1, x=of("float32", (1, 1, 6, 6))) == "example_npu.conv2d"


# --- scale ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-30, 0.1, 3e38])
def test_positive_finite_scales_are_taken(offload, scale):
    call = offload(lambda x: op.quantize(x, relax.const(scale), relax.const(0, "int8")), x=of("float32"))
    assert call.where == "npu"


@pytest.mark.parametrize("scale", [0.0, -0.0, -0.1, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("quantizes", [True, False])
def test_other_scales_are_refused(offload, scale, quantizes):
    function = op.quantize if quantizes else lambda *a: op.dequantize(*a, out_dtype="float32")
    dtype = "float32" if quantizes else "int8"
    call = offload(lambda x: function(x, relax.const(scale), relax.const(0, "int8")), x=of(dtype))
    assert refused_by(call) == {"scale"}
    assert f"{scale:g}" in call.reason


def test_one_wrong_scale_among_several_is_found(offload):
    scales, zeros = relax.const(np.array([0.1, 0.0, 0.3], "float32")), relax.const(np.zeros(3, "int8"))
    call = offload(lambda x: op.quantize(x, scales, zeros, axis=-1), x=of("float32", (2, 3)))
    assert refused_by(call) == {"scale"}


def test_scale_that_arrives_at_run_time_is_taken(offload):
    inputs = {"x": of("float32"), "s": of("float32", ()), "z": of("int8", ())}
    assert offload(lambda x, s, z: op.quantize(x, s, z), **inputs).where == "npu"


# --- memory -----------------------------------------------------------------------------------------------------------


def test_tensors_larger_than_dram_are_refused(offload):
    spec = load_spec().replace(capacity_bytes={"L3": 1_048_576})
    taken = of("float32", (128, 1024))  # 512 KiB, read and written: exactly the tier
    assert offload(nn.relu, spec, x=taken).where == "npu"
    call = offload(nn.relu, spec, x=of("float32", (128, 1025)))
    assert refused_by(call) == {"memory"}
    assert "1048576" in call.reason


def test_smallest_tile_that_does_not_fit_l1_is_refused(offload):
    inputs = {"x": of("float32", (64, 64)), "w": of("float32", (64, 64))}
    small = load_spec().replace(capacity_bytes={"L1": 8_192})
    call = offload(op.matmul, small, **inputs)
    assert refused_by(call) == {"memory"}
    assert "L1 SRAM" in call.reason and "8192" in call.reason
    assert offload(op.matmul, load_spec(), **inputs).where == "npu"


# --- operand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bias", "pattern"),
    [
        ((4, 1, 1), "conv2d_bias_fused"),
        ((1, 4, 1, 1), "conv2d_bias_fused"),
        ((1, 4, 4, 4), "conv2d_residual_fused"),
        ((4,), "conv2d"),  # along the width
        ((1, 1, 1, 1), "conv2d"),
        ((), "conv2d"),
        ((4, 1), "conv2d"),
        ((4, 4), "conv2d"),
    ],
)
def test_bias_is_a_vector_along_the_channels(make_model, bias, pattern):
    def body(builder, x, w, b):
        return op.add(builder.emit(nn.conv2d(x, w)), b)

    report = partition(make_model(body, **CONV, b=of("float32", bias))).report
    assert report[0].pattern == f"example_npu.{pattern}"
    if pattern == "conv2d":
        rules = {name: refusal.rule for name, refusal in report[1].refusals}
        assert rules["example_npu.conv2d_bias_fused"] == rules["example_npu.conv2d_residual_fused"] == "operand"


def test_bias_of_channels_last_needs_no_reshape(make_model):
    def body(builder, x, w, b):
        return op.add(builder.emit(nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO")), b)

    shapes = {"x": (1, 6, 6, 4), "w": (3, 3, 4, 5), "b": (5,)}
    report = partition(make_model(body, **{key: of("float32", shape) for key, shape in shapes.items()})).report
    assert report[0].pattern == "example_npu.conv2d_bias_fused"


def test_residual_has_the_whole_shape(make_model):
    def body(builder, x, w, r):
        return op.add(builder.emit(op.matmul(x, w)), r)

    def pattern(shape):
        inputs = {"x": of("float32", (3, 4)), "w": of("float32", (4, 5)), "r": of("float32", shape)}
        return partition(make_model(body, **inputs)).report[0].pattern.removeprefix("example_npu.")

    assert pattern((3, 5)) == "matmul_residual_fused"
    assert pattern((1, 5)) == "matmul_bias_fused"
    assert pattern((3, 1)) == "dense"  # the add broadcasts over columns: on its own
    assert pattern((2, 3, 5)) == "dense"  # the add makes the result larger


def test_dense_has_a_weight(make_model):
    def pattern(body, **inputs):
        report = partition(make_model(body, **inputs)).report
        return next(call.pattern for call in report if call.op == "relax.matmul").removeprefix("example_npu.")

    x, w = {"x": of("float32", (3, 4))}, {"w": of("float32", (4, 5))}
    weight = relax.const(np.ones((4, 5), "float32"))
    assert pattern(lambda builder, x: op.matmul(x, weight), **x) == "dense"
    assert pattern(lambda builder, x, w: op.matmul(x, w), **x, w=of("float32", (4, 5))) == "dense"
    assert pattern(lambda builder, x, w: op.matmul(x, w), **x, w=of("float32", (2, 4, 5))) == "matmul"
    assert pattern(lambda builder, x, w: op.matmul(x, builder.emit(op.tanh(w))), **x, **w) == "matmul"


# --- leak and cycle ---------------------------------------------------------------------------------------------------


def conv_relu_and(other):
    """conv2d -> relu, and ``other`` reads the convolution too."""

    def body(builder, x, w):
        conv = builder.emit(nn.conv2d(x, w))
        return op.add(builder.emit(nn.relu(conv)), builder.emit(other(conv)))

    return body


def test_intermediate_that_something_else_reads_is_a_leak(make_model):
    report = partition(make_model(conv_relu_and(op.sin), **CONV)).report
    relu = next(call for call in report if call.op == "relax.nn.relu")
    assert (relu.where, relu.pattern) == ("npu", "example_npu.relu")
    assert ("example_npu.conv2d_relu_fused", "leak") in [(name, reason.rule) for name, reason in relu.refusals]
    assert "not example_npu.conv2d_relu_fused: leak" in relu.reason and "read by" in relu.reason
    assert report[0].pattern == "example_npu.conv2d"


def test_intermediate_that_the_function_returns_is_a_leak(make_model):
    builder = relax.BlockBuilder()
    x, w = (relax.Var(key, relax.TensorType(*given)) for key, given in CONV.items())
    with builder.function("main", [x, w]):
        with builder.dataflow():
            conv = builder.emit_output(nn.conv2d(x, w))
            relu = builder.emit_output(nn.relu(conv))
        builder.emit_func_output(relax.Tuple([conv, relu]))
    report = partition(builder.get()).report
    assert [call.pattern for call in report] == ["example_npu.conv2d", "example_npu.relu"]
    (leak,) = {refusal for _, refusal in report[1].refusals if refusal.rule == "leak"}
    assert "result of the function" in leak.found


def test_dead_reader_is_no_leak(make_model):
    def body(builder, x, w):
        conv = builder.emit(nn.conv2d(x, w))
        builder.emit(op.sin(conv))
        return nn.relu(conv)

    report = partition(make_model(body, **CONV)).report
    assert {call.pattern for call in report} == {"example_npu.conv2d_relu_fused"}


def test_residual_that_depends_on_the_match_is_a_cycle(make_model):
    """add(conv, exp(conv)): the host would have to run in the middle of the composite. TVM's own fusion raises here."""

    def body(builder, x, w):
        conv = builder.emit(nn.conv2d(x, w))
        return op.add(conv, builder.emit(op.sin(conv)))

    model = make_model(body, **CONV)
    report = partition(model).report
    assert [call.pattern for call in report] == ["example_npu.conv2d", "", "example_npu.add"]
    rules = {(name, refusal.rule) for name, refusal in report[2].refusals}
    assert ("example_npu.conv2d_residual_fused", "cycle") in rules

    # A list of one's own is protected too, with a check that accepts everything and without one.
    conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    careless = [("example_npu.conv_add", is_op("relax.add")(conv, wildcard()))]
    for merge in ("safe", "never"):
        call = partition(model, patterns=careless, merge=merge).report[2]
        assert refused_by(call) == {"cycle"}
        assert "lv1" in call.reason or "exp" in call.reason


def test_residual_before_the_match_is_no_cycle(make_model):
    def body(builder, x, w):
        before = builder.emit(op.sin(x))
        return op.add(before, builder.emit(nn.conv2d(before, w, padding=1)))

    report = partition(make_model(body, **CONV)).report
    assert [call.pattern for call in report][1:] == ["example_npu.conv2d_residual_fused"] * 2


# --- how checks report ------------------------------------------------------------------------------------------------


def test_accept_is_true_only_without_reasons():
    reason = Refusal("dtype", "int8", "int64", "a cast")
    with collect_refusals() as reasons:
        assert accept([])
        assert not accept([reason])
    assert reasons == [reason]
    assert not accept([reason])
    assert reasons == [reason]
    assert str(reason) == "dtype: needs int8, found int64 (try: a cast)"


def test_a_check_of_ones_own_reports_its_reasons(make_model, emit_chain):
    def check(context):
        match = Match(context, load_spec())
        channels = int(match.root.ty.shape.values[1])
        few = [Refusal("attribute", "8 channels", str(channels), "pad them")] if channels < 8 else []
        return accept([*few, *check_leak(match)])

    relu = is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard()))
    patterns = [("example_npu.mine", relu, {}, check)]

    def model(filters):
        body = lambda builder, x, w: emit_chain(builder, x, lambda x: nn.conv2d(x, w), nn.relu)  # noqa: E731
        return make_model(body, x=of("float32", IMAGE), w=of("float32", (filters, 4, 3, 3)))

    assert partition(model(8), patterns=patterns).report[1].where == "npu"
    call = partition(model(7), patterns=patterns).report[1]
    assert call.refusals == (("example_npu.mine", Refusal("attribute", "8 channels", "7", "pad them")),)


def test_a_check_that_gives_no_reason_is_named_as_that(make_model):
    patterns = [("example_npu.never", is_op("relax.nn.relu")(wildcard()), {}, lambda context: False)]
    call = partition(make_model(lambda builder, x: nn.relu(x), x=of("float32")), patterns=patterns).report[0]
    ((name, refusal),) = call.refusals
    assert (name, refusal.rule) == ("example_npu.never", "check")
    assert "its check said no" in call.reason


def test_refusals_have_rules_of_the_list(make_model):
    report = partition(make_model(conv_relu_and(op.sin), **CONV)).report
    rules = {refusal.rule for call in report for _, refusal in call.refusals}
    assert {"leak", "attribute"} <= rules <= set(RULES)
