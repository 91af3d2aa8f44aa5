"""partition: any module in, a report of every call out, and the cut changes no value."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import traceback

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.frontend.onnx import from_onnx
from tvm.relax.transform import FuseOpsByPattern, FusionPattern, LegalizeOps
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import npu_kit
from npu_kit.byoc.model.normalize import prepare
from npu_kit.byoc.partition import partition
from npu_kit.byoc.patterns.table import pattern_table
from npu_kit.byoc.report import CallReport, Refusal, Report
from npu_kit.errors import ExecutionError, PartitionError, SpecError, UnsupportedError

op, nn = relax.op, relax.op.nn


@I.ir_module
class TwoLayers:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            R.output(d)
        return d


@I.ir_module
class Forward:
    @R.function
    def forward(x: R.Tensor((2, 4), "float32")):
        y = R.nn.relu(x)
        z = R.tanh(y)
        return z


@I.ir_module
class Helpers:
    @R.function(private=True)
    def block(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        y = R.nn.relu(x)
        return y

    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = Helpers
        a = cls.block(x)
        b = cls.block(a)
        return b


@I.ir_module
class TwoEntries:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        y = R.nn.relu(x)
        z = R.tanh(y)
        return z

    @R.function
    def other(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = TwoEntries
        y = cls.main(x)
        z = R.sigmoid(y)
        return z


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor((8,), "float32"):
        if c:
            a = R.nn.relu(x)
            b = R.sin(a)
        else:
            d = R.tanh(x)
            b = R.sigmoid(d)
        e = R.reshape(b, (8,))
        f = R.nn.relu(e)
        return f


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((2, 4), "float32"):
        y = R.match_cast(x, R.Tensor((2, 4), "float32"))
        z = R.nn.relu(y)
        w = R.tanh(z)
        return w


@I.ir_module
class Closure:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        @R.function
        def inner(y: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            z = R.nn.relu(y)
            return z

        a = inner(x)
        b = R.tanh(a)
        return b


@I.ir_module
class Capture:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        @R.function
        def inner(z: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            w = R.add(z, y)
            return w

        a = inner(x)
        b = R.tanh(a)
        return b


@I.ir_module
class Recursive:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = Recursive
        if c:
            a = R.nn.relu(x)
            b = cls.main(R.const(False, "bool"), a)
        else:
            b = R.tanh(x)
        return b


@I.ir_module
class Impure:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        y = R.nn.relu(x)
        R.print(format="between")
        z = R.tanh(y)
        return z


@I.ir_module
class Tuples:
    @R.function
    def main(p: R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((2, 4), "float32"))):
        with R.dataflow():
            a = p[0]
            b = p[1]
            c = R.add(a, b)
            d = R.nn.relu(c)
            e = (c, d)
            R.output(e)
        return e


@I.ir_module
class PrimFuncCalledMain:
    @T.prim_func(private=True, s_tir=True)
    def main(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("copy"):
                v = T.axis.remap("S", [i])
                y[v] = x[v] + T.float32(1)

    @R.function
    def forward(x: R.Tensor((4,), "float32")):
        cls = PrimFuncCalledMain
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.call_tir(cls.main, (a,), out_ty=R.Tensor((4,), "float32"))
            c = R.tanh(b)
            R.output(c)
        return c


MERGED = "Adjacent composites share a region."


def check_invariants(result):
    """What holds for every partition."""
    calls = result.report.calls
    assert [call.index for call in calls] == list(range(len(calls)))
    assert len({call.span for call in calls}) == len(calls)
    on_npu = sorted(index for region in result.regions for index in region.calls)
    assert on_npu == [call.index for call in calls if call.where == "npu"]
    for call in calls:
        assert bool(call.pattern) == bool(call.composite) == bool(call.region) == (call.where == "npu")
        assert call.reason
    for region in result.regions:
        inside = [calls[index] for index in region.calls]
        assert {call.composite for call in inside} == set(region.composites)
        assert {call.region for call in inside} == {region.label}
        assert len(region.composites) == len(set(region.composites))
        assert str(region.function.attrs["global_symbol"]) == region.symbol
        assert str(region.function.attrs["Codegen"]) == "example_npu"
    external = [str(v.name_hint) for v, f in result.module.functions.items() if f.attrs and "Codegen" in f.attrs]
    assert sorted(external) == sorted(region.symbol for region in result.regions)
    assert not [f for f in result.module.functions.values() if f.attrs and "Composite" in f.attrs]
    relax.analysis.well_formed(result.module)  # raises


@pytest.fixture
def same_values(run_on_host):
    """``same_values(mod, *arrays)``: partition in every way, and compare with the LLVM build of ``mod``."""

    def compare(mod, *arrays, entry="main", **options):
        expected = run_on_host(mod, *arrays, entry=entry)
        for merge in ("safe", "never"):
            for bind_constants in (False, True):
                result = partition(mod, merge=merge, bind_constants=bind_constants, **options)
                check_invariants(result)
                found = run_on_host(result.module, *arrays, entry=entry)
                for left, right in zip(np.atleast_1d(expected), np.atleast_1d(found), strict=True):
                    np.testing.assert_array_equal(left, right)
        return partition(mod, **options)

    return compare


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 4)).astype("float32")


# --- merged and not ---------------------------------------------------------------------------------------------------


def test_adjacent_composites_share_a_region_or_not(same_values, x, rng):
    w = rng.standard_normal((4, 4)).astype("float32")
    merged = same_values(TwoLayers, x, w)
    assert (merged.merged, merged.merge_reason) == (True, MERGED)
    assert [len(region.composites) for region in merged.regions] == [2]
    apart = partition(TwoLayers, merge="never")
    assert not apart.merged and "'never'" in apart.merge_reason
    assert [len(region.composites) for region in apart.regions] == [1, 1]
    for result in (merged, apart):
        assert [call.where for call in result.report] == ["npu"] * 4


def test_equal_layers_both_appear():
    """With shared composites one of them would vanish from every view."""
    apart = partition(TwoLayers, merge="never")
    assert [region.calls for region in apart.regions] == [(0, 1), (2, 3)]
    assert [call.region for call in apart.report] == ["region0", "region0", "region1", "region1"]
    (merged,) = partition(TwoLayers).regions
    assert merged.composites == ("example_npu.matmul_relu_fused#0", "example_npu.matmul_relu_fused#1")


def test_merge_always_merges_or_raises():
    assert partition(TwoLayers, merge="always").merged
    with pytest.raises(PartitionError, match="merging does not know If"):
        partition(Branches, merge="always")
    with pytest.raises(PartitionError, match="'sometimes'"):
        partition(TwoLayers, merge="sometimes")


@pytest.mark.parametrize("merge", ["safe", "never"])
def test_constants_stay_in_the_model_or_go_into_the_regions(make_model, merge):
    weight = relax.const(np.eye(4, dtype="float32"))
    model = make_model(lambda builder, x: op.matmul(x, weight), x=((2, 4), "float32"))

    def parameters(bind_constants):
        (region,) = partition(model, merge=merge, bind_constants=bind_constants).regions
        return len(region.function.params)

    assert (parameters(False), parameters(True)) == (2, 1)


def test_regions_are_numbered_in_order_of_execution(make_model):
    def body(builder, x):
        for step in (nn.relu, op.sin, op.tanh, op.sin, op.sigmoid):
            x = builder.emit(step(x))
        return nn.gelu(x)

    result = partition(make_model(body, x=((2, 4), "float32")))
    assert [region.label for region in result.regions] == ["region0", "region1", "region2"]
    assert [region.composites for region in result.regions] == [
        ("example_npu.relu#0",),
        ("example_npu.tanh#0",),
        ("example_npu.sigmoid#0", "example_npu.gelu#1"),
    ]
    assert [call.where for call in result.report] == ["npu", "host", "npu", "host", "npu", "npu"]


# --- any form of module -----------------------------------------------------------------------------------------------


def test_entry_of_another_name_keeps_it(same_values, x):
    result = same_values(Forward, x, entry="forward")
    assert result.merged
    assert len(result.regions) == 1
    assert "forward" in [var.name_hint for var in result.module.get_global_vars()]
    assert str(result.module["forward"].attrs["global_symbol"]) == "forward"
    assert [call.span for call in result.report] == ["forward:0", "forward:1"]


def test_module_without_dataflow_block(same_values, make_model, x):
    model = make_model(lambda builder, x: nn.relu(builder.emit(op.tanh(x))), x=((2, 4), "float32"), dataflow=False)
    assert [call.where for call in same_values(model, x).report] == ["npu", "npu"]


def test_private_helpers_become_part_of_the_model(same_values, x):
    result = same_values(Helpers, x)
    assert result.merged
    assert [call.op for call in result.report] == ["relax.nn.relu"] * 2


def test_several_entries_stay_and_are_not_merged(same_values, run_on_host, x):
    result = same_values(TwoEntries, x)
    expected = run_on_host(TwoEntries, x, entry="other")
    np.testing.assert_array_equal(run_on_host(result.module, x, entry="other"), expected)
    assert not result.merged and "2 (main, other)" in result.merge_reason
    assert [(call.op, call.where) for call in result.report] == [
        ("relax.nn.relu", "npu"),
        ("relax.tanh", "npu"),
        ("main", "host"),
        ("relax.sigmoid", "npu"),
    ]
    assert [call.span for call in result.report] == ["main:0", "main:1", "other:2", "other:3"]
    assert "calls main" in result.report[2].reason


@pytest.mark.parametrize("condition", [True, False])
def test_branches(same_values, x, condition):
    result = same_values(Branches, np.array(condition), x)
    assert not result.merged and "If" in result.merge_reason
    places = {call.op.removeprefix("relax."): call.where for call in result.report}
    assert places == {
        "nn.relu": "npu",
        "sin": "host",
        "tanh": "npu",
        "sigmoid": "npu",
        "reshape": "host",
    }
    assert len(result.report) == 6


def test_match_cast(same_values, x):
    result = same_values(Cast, x)
    assert not result.merged and "MatchCast" in result.merge_reason
    assert [call.where for call in result.report] == ["npu", "npu"]


def test_inner_function_becomes_part_of_the_model(same_values, x):
    result = same_values(Closure, x)
    assert [(call.op, call.where) for call in result.report] == [("relax.nn.relu", "npu"), ("relax.tanh", "npu")]


def test_inner_function_that_captures_a_variable_is_refused():
    with pytest.raises(UnsupportedError, match="closure"):
        partition(Capture)


def test_recursion(same_values, x):
    result = same_values(Recursive, np.array(True), x)
    assert not result.merged
    assert {call.op: call.where for call in result.report} == {
        "relax.nn.relu": "npu",
        "main": "host",
        "relax.tanh": "npu",
    }


def test_side_effect_stays_in_its_place(same_values, x):
    result = same_values(Impure, x)
    assert [call.where for call in result.report] == ["npu", "host", "npu"]
    assert len(result.regions) == 2


def test_tuples_in_and_out(run_on_host, x):
    result = partition(Tuples)
    check_invariants(result)
    assert [call.where for call in result.report] == ["npu", "npu"]
    assert len(result.regions) == 1


def test_tensorir_function_called_main(same_values, rng):
    result = same_values(PrimFuncCalledMain, rng.standard_normal(4).astype("float32"), entry="forward")
    assert not result.merged and "called main" in result.merge_reason
    assert [call.where for call in result.report] == ["npu", "host", "npu"]
    assert result.report[1].op == "call_tir main"


def test_symbolic_shapes_stay_on_the_host(same_values, make_model, rng):
    size = tvm.tirx.Var("n", "int64")
    model = make_model(lambda builder, x: nn.relu(x), x=relax.TensorType((size, 4), "float32"))
    result = same_values(model, rng.standard_normal((3, 4)).astype("float32"))
    assert result.regions == ()
    assert "nx4 float32" in result.report[0].reason


def module_of(parameters, bindings, result):
    body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(*binding) for binding in bindings])], result)
    function = relax.Function(parameters, body, result.ty).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


def test_a_module_that_is_not_well_formed_is_told_what_is_wrong():
    x, z = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xz")
    y = relax.DataflowVar("y", relax.TensorType((2, 3), "float32"))
    too_many = relax.Call(tvm.ir.Op.get("relax.nn.relu"), [x, x])
    for bindings, told in (
        ([(y, nn.relu(x)), (y, op.exp(x)), (z, op.tanh(y))], "y is defined more than once"),
        ([(z, op.tanh(y)), (y, op.exp(x))], "y is not defined"),
        ([(x, op.exp(x)), (z, nn.relu(x))], "x is defined more than once"),
        ([(z, too_many)], r"Operator relax\.nn\.relu expects 1 arguments, but was called with 2"),
    ):
        with pytest.raises(PartitionError, match=f"this module is not well formed: .*{told}.* Try: "):
            partition(module_of([x], bindings, z))


def test_a_function_taken_from_another_module_runs_under_the_name_that_it_has_here():
    x, z = (relax.Var(name, relax.TensorType((2,), "float32")) for name in "xz")
    function = module_of([x], [(z, nn.relu(x))], z)["main"].with_attr("global_symbol", "forward")
    value = np.array([-1, 2], "float32")
    for name in ("main", "other"):
        np.testing.assert_array_equal(npu_kit.compile(tvm.IRModule({name: function})).run(value), [0, 2])


def test_partitioning_twice_is_refused():
    for merge in ("safe", "never"):
        with pytest.raises(PartitionError, match="partitioned already"):
            partition(partition(TwoLayers, merge=merge).module)


@pytest.mark.parametrize(
    "name", ["lesson.tanh", "tanh", "example_npu", "example_npu.", "example_npux.tanh", ".tanh", ""]
)
def test_patterns_of_another_backend_are_refused(name):
    pattern = is_op("relax.tanh")(wildcard())
    with pytest.raises(PartitionError, match=f"pattern '{name}': .*the backend, and it must be example_npu") as caught:
        partition(Forward, patterns=[(name, pattern)])
    (advised,) = re.findall("the name '(.*)'", caught.value.hint)
    partition(Forward, patterns=[(advised, pattern)])  # which is a name that is taken


def test_regions_of_another_backend_stay(run_on_host, x):
    tanh = FuseOpsByPattern([("other.tanh", is_op("relax.tanh")(wildcard()))], annotate_codegen=True)
    both = partition(tanh(prepare(Forward)))
    assert [call.where for call in both.report] == ["npu", "host"]
    assert "no operator" in both.report[1].reason
    assert {str(f.attrs["Codegen"]) for f in both.module.functions.values() if f.attrs and "Codegen" in f.attrs} == {
        "other",
        "example_npu",
    }
    expected = run_on_host(Forward, x, entry="forward")
    np.testing.assert_array_equal(run_on_host(both.module, x, entry="forward"), expected)


# --- nothing matched --------------------------------------------------------------------------------------------------


def test_legalised_module_says_so(x):
    result = partition(LegalizeOps()(TwoLayers))
    assert result.regions == () and not result.merged
    assert "LegalizeOps ran before partition" in str(result.report)
    assert all("TensorIR" in call.reason for call in result.report)


def test_model_without_anything_for_the_npu_says_so(make_model):
    result = partition(make_model(lambda builder, x: op.sin(builder.emit(op.sin(x))), x=((2, 4), "float32")))
    assert "Nothing matched" in str(result.report)
    assert {call.reason for call in result.report} == {"no pattern names relax.sin"}


def test_model_without_calls(make_model):
    result = partition(make_model(lambda builder, x: x, x=((2, 4), "float32")))
    assert len(result.report) == 0
    assert "no call" in str(result.report)


def test_operator_in_another_combination(make_model):
    conv = is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard()))
    model = make_model(lambda builder, x: nn.relu(x), x=((2, 4), "float32"))
    result = partition(model, patterns=[("example_npu.conv_relu", conv)])
    assert "none has this combination" in result.report[0].reason


def test_call_inside_a_refused_match_names_the_pattern(make_model):
    pattern = is_op("relax.nn.relu")(is_op("relax.negative")(wildcard()))
    model = make_model(lambda builder, x: nn.relu(builder.emit(op.negative(x))), x=((2, 4), "float32"))
    report = partition(model, patterns=[("example_npu.both", pattern, {}, lambda context: False)]).report
    assert report[0].reason.startswith("example_npu.both refused the match that it is part of")
    assert "its check said no" in report[1].reason


# --- patterns of one's own --------------------------------------------------------------------------------------------


UPSTREAM = """
import sys
import tvm.relax.backend.contrib.example_npu
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.script import ir as I, relax as R
from npu_kit.byoc.model.normalize import prepare
from npu_kit.byoc.partition import partition

@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float64"), w: R.Tensor((4, 3, 3, 3), "float64")):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

result = partition(Model, patterns=get_patterns_with_prefix("example_npu"))
assert [call.pattern for call in result.report] == ["example_npu.conv2d_relu_fused"] * 2, result.report
"""


def test_upstreams_patterns_are_taken_as_they_are(tmp_path):
    # In a process of its own, whose registry holds upstream's patterns only; and they accept every dtype.
    script = tmp_path / "upstream.py"
    script.write_text(UPSTREAM)
    subprocess.run([sys.executable, str(script)], check=True)


def test_patterns_are_objects_or_tuples():
    relu = is_op("relax.nn.relu")(wildcard())
    forms = [
        FusionPattern("example_npu.relu", relu),
        ("example_npu.relu", relu),
        ("example_npu.relu", relu, {"root": relu}),
        ("example_npu.relu", relu, {"root": relu}, lambda context: True),
        ("example_npu.relu", relu, {"root": relu}, lambda context: True, lambda annotated: {"mine": "yes"}),
    ]
    for form in forms:
        assert [call.where for call in partition(Forward, patterns=[form]).report] == ["npu", "host"]
    (region,) = partition(Forward, patterns=forms[-1:]).regions
    assert "mine" in region.function.script()


@pytest.mark.parametrize("wrong", ["relu", ("relu",), ("example_npu.relu", "relax.nn.relu"), 3])
def test_what_is_no_pattern_is_named(wrong):
    with pytest.raises(PartitionError, match=r"patterns\[1\]"):
        partition(Forward, patterns=[pattern_table()[0], wrong])


RELU = is_op("relax.nn.relu")(wildcard())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((RELU, {"root": RELU}), "what stands first is CallPattern, and it has to be its name"),
        ((3, RELU), "what stands first is int"),
        (("example_npu.relu", "relax.nn.relu"), "behind its name stands str, and it has to be a pattern"),
        (("example_npu.relu", (RELU, {"root": RELU})), "behind its name stands a tuple of 2"),
        (("example_npu.relu", RELU, [RELU]), "its annotations are a list of 1"),
        (("example_npu.relu", RELU, {"root": "relu"}), "its annotations are a dict of 1"),
        (("example_npu.relu", RELU, None, True), "its check is bool, and has to be a function"),
        (("example_npu.relu", RELU, None, None, 3), "its attribute getter is int"),
    ],
)
def test_a_row_of_wrong_parts_is_told_in_plain_words(row, words):
    with pytest.raises(PartitionError, match=words) as caught:
        partition(Forward, patterns=[row])
    assert "Mismatched" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["example_npu", 3, FusionPattern("example_npu.x", wildcard())])
def test_what_is_no_list_of_patterns_is_named(wrong):
    with pytest.raises(PartitionError, match="a list is needed"):
        partition(Forward, patterns=wrong)


def test_merging_that_fails_leaves_one_region_per_composite(monkeypatch):
    def fails():
        raise ValueError("a case that nobody thought of")

    monkeypatch.setattr("npu_kit.byoc.partition.MergeCompositeFunctions", fails)
    result = partition(TwoLayers)
    check_invariants(result)
    assert len(result.regions) == 2
    assert "ValueError, a case that nobody thought of" in result.merge_reason
    with pytest.raises(PartitionError, match="nobody thought of"):
        partition(TwoLayers, merge="always")


def test_empty_pattern_list():
    assert partition(Forward, patterns=[]).regions == ()


class Mistake(Exception):
    """An error of a check, of no class that TVM knows."""


def frames_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("error", [Mistake("in the check"), AttributeError("no such attribute"), KeyboardInterrupt()])
def test_error_in_a_check_comes_out_as_it_was_raised(error):
    def check_that_fails(context):
        raise error

    pattern = ("example_npu.relu", is_op("relax.nn.relu")(wildcard()), {}, check_that_fails)
    with pytest.raises(BaseException) as caught:
        partition(Forward, patterns=[pattern])
    assert caught.value is error
    assert frames_of(caught.value)[-1] == "check_that_fails"


class Wordless(Exception):
    def __str__(self):
        raise Mistake("in __str__")


@pytest.mark.parametrize("error", [Wordless(), Mistake("half of a pair: \ud800")])
def test_an_error_whose_text_cannot_be_had_comes_out_too(error):
    # TVM asks for the text of an exception, and ends the process where it gets none.
    def fails(context):
        raise error

    relu = is_op("relax.nn.relu")(wildcard())
    for functions in ((fails, None), (lambda context: True, fails)):
        with pytest.raises(type(error)) as caught:
            partition(Forward, patterns=[("example_npu.relu", relu, {}, *functions)])
        assert caught.value is error


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([], r"it returned list, and True or False is needed. Try: accept\(reasons\)"),
        ([Refusal("attribute", "a", "b", "c")], "it returned list"),
        (None, "it returned NoneType, and True or False is needed. Try: return"),
        ("no", "it returned str"),
        (np.zeros(2), "it returned ndarray"),
    ],
)
def test_a_check_answers_with_a_truth_value(answer, told):
    # A list of reasons is true where it refuses.
    pattern = ("example_npu.relu", is_op("relax.nn.relu")(wildcard()), {}, lambda context: answer)
    with pytest.raises(PartitionError, match=f"the check of example_npu.relu: {told}"):
        partition(Forward, patterns=[pattern])


@pytest.mark.parametrize("answer", [True, False, np.True_, np.False_, 1, 0])
def test_a_truth_value_of_any_kind_is_one(answer):
    pattern = ("example_npu.relu", is_op("relax.nn.relu")(wildcard()), {}, lambda context: answer)
    assert len(partition(Forward, patterns=[pattern]).report.on_npu) == bool(answer)


def test_error_in_the_check_of_a_pattern_object_keeps_its_words_and_place():
    """A FusionPattern holds its check as a function of TVM's, which knows few classes of errors."""

    def check_that_fails(context):
        raise Mistake("in the check")

    pattern = FusionPattern("example_npu.relu", is_op("relax.nn.relu")(wildcard()), {}, check_that_fails)
    with pytest.raises(RuntimeError, match="in the check") as caught:
        partition(Forward, patterns=[pattern])
    assert frames_of(caught.value)[-1] == "check_that_fails"


def test_interrupt_in_a_check_of_the_kit_is_an_interrupt(monkeypatch):
    def interrupted(match, *specific):
        raise KeyboardInterrupt

    monkeypatch.setattr("npu_kit.byoc.patterns.table.check_match", interrupted)
    with pytest.raises(KeyboardInterrupt):
        partition(Forward)


def test_error_in_an_attribute_getter_comes_out_as_it_was_raised():
    def getter(annotated):
        raise Mistake("in the getter")

    pattern = ("example_npu.relu", is_op("relax.nn.relu")(wildcard()), {}, lambda context: True, getter)
    with pytest.raises(Mistake, match="in the getter"):
        partition(Forward, patterns=[pattern])


# --- other input ------------------------------------------------------------------------------------------------------


def test_wrong_arguments():
    with pytest.raises(PartitionError, match="IRModule"):
        partition("model.onnx")
    with pytest.raises(SpecError, match="no preset"):
        partition(Forward, "exmaple")


def test_the_given_module_stays_as_it_is():
    before = TwoLayers.script()
    result = partition(TwoLayers)
    assert result.original.same_as(TwoLayers)
    assert TwoLayers.script() == before


# --- a model from ONNX ------------------------------------------------------------------------------------------------


def inverted_residual(rng):
    """One block of MobileNet-V2: expand, depthwise, project, add; relu6 is an ONNX Clip."""
    constants = {
        "w1": rng.standard_normal((12, 4, 1, 1)),
        "w2": rng.standard_normal((12, 1, 3, 3)),
        "w3": rng.standard_normal((4, 12, 1, 1)),
        "b1": rng.standard_normal(12),
        "b2": rng.standard_normal(12),
        "b3": rng.standard_normal(4),
        "lo": np.array(0.0),
        "hi": np.array(6.0),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"]),
        helper.make_node("Clip", ["a", "lo", "hi"], ["b"]),
        helper.make_node("Conv", ["b", "w2", "b2"], ["c"], pads=[1, 1, 1, 1], group=12),
        helper.make_node("Clip", ["c", "lo", "hi"], ["d"]),
        helper.make_node("Conv", ["d", "w3", "b3"], ["e"]),
        helper.make_node("Add", ["x", "e"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 6, 6)) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(a.astype("float32"), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "block", value[:1], value[1:], initializers)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), opset=17)


def test_inverted_residual_from_onnx_is_one_region_of_three_composites(same_values, rng):
    result = same_values(inverted_residual(rng), rng.standard_normal((1, 4, 6, 6)).astype("float32"))
    (region,) = result.regions
    assert region.composites == (
        "example_npu.conv2d_bias_activation_fused#0",
        "example_npu.depthwise_conv2d_bias_activation_fused#1",
        "example_npu.conv2d_bias_residual_fused#2",
    )
    assert result.report.counts == {"npu": 9, "host": 0}


def quantized_block(rng):
    """int8 in, int8 out: conv + bias + relu, and a shortcut that is added."""
    scale, zero = relax.const(0.05), relax.const(3, "int8")
    weight = relax.const(rng.integers(-50, 50, (4, 4, 3, 3)).astype("int8"))

    def body(builder, x):
        def real(value, zero=zero):
            return builder.emit(op.dequantize(value, scale, zero, out_dtype="float32"))

        shortcut = real(x)
        conv = builder.emit(nn.conv2d(shortcut, real(weight, relax.const(0, "int8")), padding=1))
        narrow = builder.emit(op.quantize(builder.emit(nn.relu(conv)), scale, zero, out_dtype="int8"))
        total = builder.emit(nn.relu(builder.emit(op.add(real(narrow), shortcut))))
        return op.quantize(total, scale, zero, out_dtype="int8")

    return body


@pytest.mark.parametrize("spec", ["example", "ethos_u65_like"])
def test_quantized_block_is_two_chains_on_an_integer_machine_too(same_values, make_model, rng, spec):
    model = make_model(quantized_block(rng), x=((1, 4, 6, 6), "int8"))
    result = same_values(model, rng.integers(-128, 128, (1, 4, 6, 6)).astype("int8"), spec=spec)
    (region,) = result.regions
    assert region.composites == (
        "example_npu.quantized_conv2d_activation_fused#0",
        "example_npu.quantized_add_activation_fused#1",
    )
    assert result.report.counts["host"] == 0


def test_floats_do_not_enter_or_leave_an_integer_machine(make_model, rng):
    body = quantized_block(rng)
    model = make_model(
        lambda builder, x: op.dequantize(
            builder.emit(body(builder, x)), relax.const(0.05), relax.const(3, "int8"), out_dtype="float32"
        ),
        x=((1, 4, 6, 6), "int8"),
    )
    report = partition(model, "ethos_u65_like").report
    (last,) = report.on_host
    assert last.op == "relax.dequantize" and last.refusals[-1][1].rule == "dtype"


def test_quantized_chain_is_one_composite(same_values, make_model, rng):
    scale, zero = relax.const(0.05), relax.const(3, "int8")
    weight = relax.const(rng.integers(-50, 50, (4, 4, 3, 3)).astype("int8"))
    bias = relax.const(rng.integers(-99, 99, (1, 4, 1, 1)).astype("int32"))

    def body(builder, x):
        real = builder.emit(op.dequantize(x, scale, zero, out_dtype="float32"))
        weights = builder.emit(op.dequantize(weight, scale, relax.const(0, "int8"), out_dtype="float32"))
        conv = builder.emit(nn.conv2d(real, weights, padding=1))
        offset = builder.emit(op.dequantize(bias, relax.const(0.0025), relax.const(0, "int32"), out_dtype="float32"))
        relu = builder.emit(nn.relu(builder.emit(op.add(conv, offset))))
        return op.quantize(relu, scale, zero, out_dtype="int8")

    model = make_model(body, x=((1, 4, 6, 6), "int8"))
    result = same_values(model, rng.integers(-128, 128, (1, 4, 6, 6)).astype("int8"))
    (region,) = result.regions
    assert region.composites == ("example_npu.quantized_conv2d_bias_activation_fused#0",)
    assert len(region.calls) == 7


# --- the report as text -----------------------------------------------------------------------------------------------


def test_report_is_a_table_with_counts():
    text = str(partition(Branches).report)
    lines = text.splitlines()
    assert lines[0] == "4 of 6 calls on the NPU, in 4 composites and 4 regions; 2 on the host."
    assert sum("no pattern names relax.sin" in line for line in lines) == 1
    assert len({line.index("why") for line in lines if line.startswith("#")}) == 1


def test_names_from_outside_are_escaped():
    refusal = Refusal("dtype", "<b>", "&", "")
    call = CallReport(0, "main:0", "<script>", '"x"', "2 float32", "host", "", "", "", (("p", refusal),), "a < b")
    html = Report((call,), ("<i>note</i>",))._repr_html_()
    for tag in ("<script>", "<i>", "<b>"):
        assert tag not in html
    assert "&lt;script&gt;" in html and "a &lt; b" in html and "&lt;i&gt;note" in html


def test_partition_shows_itself_in_a_line():
    assert len(repr(partition(TwoLayers))) < 200
    assert "matmul_<wbr>relu_<wbr>fused" in partition(TwoLayers)._repr_html_()


def test_patterns_without_end_and_options_that_are_arrays_are_refused():
    row = ("example_npu.relu", is_op("relax.nn.relu")(wildcard()))
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(y)
    with pytest.raises(PartitionError, match="patterns has no end: at most 10,000 patterns are taken"):
        partition(builder.get(), patterns=itertools.repeat(row))
    options = np.array(["safe", "never"])
    with pytest.raises(PartitionError, match=r"merge=array.*it is one of"):
        partition(builder.get(), merge=options)
    with pytest.raises(ExecutionError, match="no mode array"):
        npu_kit.compile(builder.get(), mode=options)
