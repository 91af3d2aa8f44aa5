"""What a picture of a partitioned model shows, compared with the report and the module itself."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pictures import parse, words
from tvm import relax
from tvm.relax import op
from tvm.script import ir
from tvm.script import relax as R

from npu_kit import zoo
from npu_kit.byoc.describe import describe_partition
from npu_kit.byoc.partition import partition
from npu_kit.byoc.report import Partition
from npu_kit.hw.presets import load_spec
from npu_kit.render import Diagram, draw, outline
from npu_kit.render.diagram import verify_diagram

SAMPLES = ("matmul_relu", "residual_block", "depthwise_block", "attention", "digits", "sin_between", "shared_conv")


def operations(diagram: Diagram, place: str) -> Counter[str]:
    return Counter(box.title for box in diagram.boxes if box.kind == "op" and box.place == place)


def called(part: Partition, where: str) -> Counter[str]:
    return Counter(call.op.removeprefix("relax.") for call in part.report if call.where == where)


@pytest.mark.parametrize("merge", ["safe", "never"])
@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_call_of_the_report_is_one_box_where_the_report_says(name: str, bind: bool, merge: str) -> None:
    part = partition(zoo.build(name), merge=merge, bind_constants=bind)
    diagram = describe_partition(part)
    verify_diagram(diagram)
    assert operations(diagram, "npu") == called(part, "npu")
    assert operations(diagram, "host") == called(part, "host")
    regions = [group for group in diagram.groups if group.kind == "region"]
    composites = [group for group in diagram.groups if group.kind == "composite"]
    assert [group.title for group in regions] == [region.label for region in part.regions]
    assert [group.title for group in composites] == [label for region in part.regions for label in region.composites]
    assert all(box.engine for box in diagram.boxes if box.place == "npu")
    assert part.report.summary in diagram.notes


def test_arrows_follow_the_tensors(make_model, emit_chain) -> None:
    def body(builder, x, w):
        product = builder.emit(op.matmul(x, w))
        return builder.emit(op.subtract(builder.emit(op.sin(product)), product))

    part = partition(make_model(body, x=((4, 8), "float32"), w=((8, 8), "float32")))
    diagram = describe_partition(part)
    title = {box.key: box.title for box in diagram.boxes}
    assert {(title[arrow.source], title[arrow.target]) for arrow in diagram.arrows} == {
        ("x", "matmul"),
        ("w", "matmul"),
        ("matmul", "sin"),
        ("sin", "subtract"),
        ("matmul", "subtract"),
        ("subtract", "result 0"),
    }
    assert {arrow.label for arrow in diagram.arrows if title[arrow.source] == "matmul"} == {"4x8 float32"}


def test_composites_stand_inside_their_region(make_model, emit_chain) -> None:
    model = make_model(
        lambda builder, x, w: emit_chain(builder, x, lambda v: op.matmul(v, w), op.nn.softmax),
        x=((4, 8), "float32"),
        w=((8, 8), "float32"),
    )
    text = outline(describe_partition(partition(model))).splitlines()
    assert text[:7] == [
        "- x  [input, 4x8 float32]",
        "- w  [input, 8x8 float32]",
        "region0",
        "  example_npu.dense#0",
        "    - matmul  [matrix, npu]",
        "  example_npu.softmax#1",
        "    - nn.softmax  [activation, npu]",
    ]


def test_both_branches_of_an_if_are_drawn() -> None:
    @ir.ir_module
    class Branches:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (4, 8), "float32"
        ):
            if c:
                z: R.Tensor((4, 8), "float32") = R.matmul(x, w)
            else:
                z: R.Tensor((4, 8), "float32") = R.sin(x)
            return z

    diagram = describe_partition(partition(Branches))
    title = {box.key: box.title for box in diagram.boxes}
    into = [title[arrow.source] for arrow in diagram.arrows if title[arrow.target] == "if"]
    assert into == ["c", "matmul", "sin"]


def test_each_function_of_a_model_has_a_frame() -> None:
    @ir.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Two
            with R.dataflow():
                y = cls.other(x)
                R.output(y)
            return y

        @R.function
        def other(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    text = outline(describe_partition(partition(Two))).splitlines()
    assert text[:5] == ["main", "  - x  [input, 4x8 float32]", "  - other  [host]", "  - result 0  [output]", "other"]
    assert "    example_npu.relu#0" in text


def test_a_refusal_says_first_what_was_found() -> None:
    diagram = describe_partition(partition(zoo.build("float64_matmul")))
    notes = [box.note for box in diagram.boxes if box.place == "host"]
    assert all(note.startswith("refused, dtype: found float64, needs") for note in notes)
    assert len(notes) == 2
    assert any("found float64" in word for word in words(parse(draw(diagram))))


def test_of_several_refusals_the_picture_shows_the_one_that_mattered(make_model) -> None:
    """That a convolution is not depthwise is no loss: that it does not fit L1 is."""
    model = make_model(
        lambda builder, x, w: op.nn.conv2d(x, w), x=((1, 4, 6, 6), "float32"), w=((4, 4, 3, 3), "float32")
    )
    small = load_spec("example").replace(capacity_bytes={"L1": 64})
    (row,) = (part := partition(model, small)).report
    assert row.refusals[0][1].found == "groups=1"
    (box,) = [box for box in describe_partition(part).boxes if box.kind == "op"]
    assert box.note.startswith("refused, memory: found") and box.note.split("found ")[1].split(",")[0] in row.reason


def test_an_operation_without_a_pattern_says_so(make_model) -> None:
    part = partition(make_model(lambda builder, x: builder.emit(op.sin(x)), x=((4,), "float32")))
    (box,) = [box for box in describe_partition(part).boxes if box.kind == "op"]
    assert (box.place, box.note) == ("host", "no pattern names relax.sin")


def test_tuples_in_and_out(make_model) -> None:
    def body(builder, x):
        parts = builder.emit(op.topk(x, 2, axis=0))
        return builder.emit(relax.Tuple([op.nn.relu(parts[1]), parts[0]]))

    diagram = describe_partition(partition(make_model(body, x=((4, 8), "float32"))))
    title = {box.key: box.title for box in diagram.boxes}
    drawn = [(title[arrow.source], title[arrow.target]) for arrow in diagram.arrows]
    assert ("topk", "nn.relu") in drawn
    assert ("nn.relu", "result 0") in drawn
    assert ("topk", "result 1") in drawn


def test_constants_of_one_operation_are_one_box(make_model) -> None:
    def body(builder, x):
        parameters = [relax.const(np.ones(8, "float32")) for _ in range(4)]
        normal = builder.emit(op.nn.batch_norm(x, *parameters, axis=1, training=False))
        return builder.emit(relax.TupleGetItem(normal, 0))

    diagram = describe_partition(partition(make_model(body, x=((1, 8, 4, 4), "float32")), bind_constants=True))
    assert [(box.title, box.rows) for box in diagram.boxes if box.kind == "constant"] == [
        ("4 constants", ("4 of 8 float32",))
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_can_be_drawn(name: str) -> None:
    diagram = describe_partition(partition(zoo.build(name)))
    root = parse(draw(diagram))
    assert len([e for e in root.iter() if e.get("class") == "node"]) == len(diagram.boxes)
    assert len([e for e in root.iter() if e.get("class") == "edge"]) == len(diagram.arrows)
