"""Checks of the lessons' exercises can fail: answers that learners give, and what they are told.

That the right answers pass is tested where the solved notebooks run, with NPU_KIT_EXERCISES=strict.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FuseOpsByPattern

from npu_kit.byoc.model.calls import shape_of
from npu_kit.byoc.model.normalize import prepare
from npu_kit.byoc.patterns.checks import check_bias
from npu_kit.byoc.patterns.table import pattern_table
from npu_kit.byoc.report import Refusal
from npu_kit.exercises import check
from npu_kit.exercises.exercise import NOT_YET, WRONG

REFUSAL = Refusal("shape", "this", "that", "")


def pattern(root_of, labels=lambda anchor, bias, root: {"anchor": anchor, "bias": bias, "root": root}):
    def conv_bias_relu():
        anchor, bias = is_op("relax.nn.conv2d")(wildcard(), wildcard()), wildcard()
        root = root_of(anchor, bias)
        return root, labels(anchor, bias, root)

    return conv_bias_relu


def relu_of_add(anchor, bias):
    return is_op("relax.nn.relu")(is_op("relax.add")(anchor, bias))


def swapped(anchor, bias, root):
    return {"anchor": root, "bias": bias, "root": anchor}


def written_twice(anchor, bias):
    return relu_of_add(is_op("relax.nn.conv2d")(wildcard(), wildcard()), bias)


def bias_refused_by(*refusals):
    """A check that is right about which bias to refuse, and gives these reasons."""
    return lambda match: list(refusals) if check_bias(match) else []


def refuse_by_side(axis, rule="attribute"):
    """A check that looks at one side of the kernel only."""

    def reasons(match):
        side = shape_of(match.labelled("anchor").args[1])[axis]
        return [] if side == 1 else [Refusal(rule, "a side of 1", str(side), "")]

    return reasons


def refuse_short_shapes(match):
    return [REFUSAL] if len(shape_of(match.labelled("bias"))) < 4 else []


def fuse_only(one_by_one):
    return lambda model: FuseOpsByPattern(pattern_table(), annotate_codegen=one_by_one)(prepare(model))


def load(tile, piece):
    tile[...] = 0
    return load_dirty(tile, piece)


def load_dirty(tile, piece):
    tile[: piece.shape[0], : piece.shape[1]] = piece
    return tile


def load_forgotten(tile, piece):
    load(tile, piece)


def load_elsewhere(tile, piece):
    return load(np.empty_like(tile), piece)


def aside(*tiers):
    """A product that asks for views, and computes outside of them."""

    def tiled_matmul(a, b, memory):
        for tier in tiers:
            memory[tier].view(0, (32, 32), "float32")
        return np.asarray(a) @ np.asarray(b)

    return tiled_matmul


def late_relu(a, b, memory):
    return np.maximum(tiled()(a, b, memory), 0)


def refuse_by_count(match):
    """As many values as channels are no bias yet."""
    channels = shape_of(match.labelled("anchor"))[1]
    return [] if np.prod(shape_of(match.labelled("bias"))) == channels else [Refusal("operand", "a", "b", "")]


def misspelt_operator():
    return is_op("relax.relu")(wildcard())


def nodes_by_region_order(region):
    """Right where the composite takes its arguments in the order of the region's parameters, as TVM writes it."""
    definition, _ = region.body.blocks[0].bindings
    number = {parameter: place for place, parameter in enumerate(definition.value.params)}
    nodes = [{"op": "input", "name": parameter.name} for parameter in region.params]
    for binding in definition.value.body.blocks[0].bindings:
        inputs = [[number[operand], 0, 0] for operand in binding.value.args]
        number[binding.var] = len(nodes)
        nodes.append({"op": "kernel", "name": binding.value.op.name.split(".")[-1], "inputs": inputs})
    return nodes


def tiled(load=load, clear_tile=True, clear_chunk=False, far_sum=False):
    """The tiled product, right but for what the arguments break."""

    def tiled_matmul(a, b, memory, tile=32, chunk=128):
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
        near_a = memory["L1"].view(0, (tile, chunk), "float32")
        near_b = memory["L1"].view(near_a.nbytes, (chunk, tile), "float32")
        accumulator = memory["L0"].view(0, (tile, tile), "float32")
        if far_sum:
            accumulator = np.empty((tile, tile), np.float32)
        for i, j in product(range(0, a.shape[0], tile), range(0, b.shape[1], tile)):
            here = out[i : i + tile, j : j + tile]
            if clear_tile:
                accumulator[...] = 0
            for c in range(0, a.shape[1], chunk):
                if clear_chunk:
                    accumulator[...] = 0
                pieces = load(near_a, a[i : i + tile, c : c + chunk]), load(near_b, b[c : c + chunk, j : j + tile])
                accumulator += pieces[0] @ pieces[1]
            here[...] = accumulator[: here.shape[0], : here.shape[1]]
        return out

    return tiled_matmul


WRONG_ANSWERS = [
    ("start.free_operator", "relax.add", "'relax.add' is not it. Hint"),
    ("start.image_bytes", 256, "too small"),
    ("start.digits_change", True, "True is not it. Hint"),
    ("start.host_reasons", lambda report: {call.name: call.reason for call in report}, "is too much"),
    ("patterns.conv_bias_relu", lambda: wildcard(), "expected a pair"),
    ("patterns.conv_bias_relu", lambda: (wildcard(), {"anchor": wildcard()}), "'bias' is missing"),
    ("patterns.conv_bias_relu", pattern(lambda anchor, bias: is_op("relax.add")(anchor, bias)), "'root' at relax.add"),
    ("patterns.conv_bias_relu", pattern(relu_of_add, swapped), "'anchor' is at relax.nn.relu"),
    ("patterns.conv_bias_relu", pattern(lambda a, b: relu_of_add(a, wildcard())), "'bias' is not part"),
    ("patterns.conv_bias_relu", pattern(written_twice), "'anchor' is not part of the pattern"),
    ("patterns.bias_reasons", lambda match: [], "(1, 24, 16, 16) is taken"),
    ("patterns.bias_reasons", lambda match: [REFUSAL], "(1, 24, 1, 1) is refused"),
    ("patterns.bias_reasons", lambda match: True, "expected a list of Refusal"),
    ("patterns.bias_reasons", refuse_short_shapes, "(24, 1, 1) is refused"),
    ("patterns.bias_reasons", lambda match: match.nothing, "AttributeError"),
    ("patterns.bias_reasons", bias_refused_by(REFUSAL), "the rule is 'shape', expected 'operand'"),
    ("patterns.bias_reasons", bias_refused_by(Refusal("operand", "a", "b", ""), REFUSAL), "gives 2 refusals"),
    ("patterns.bias_reasons", bias_refused_by(Refusal("operand", 1, "b", "")), "needed is 1, expected a text"),
    ("patterns.bias_reasons", bias_refused_by(Refusal("operand", "a", "", "")), "found is empty"),
    ("patterns.bias_reasons", refuse_by_count, "of shape (1, 1, 1, 24), is taken"),
    ("patterns.conv_bias_relu", misspelt_operator, "relax.relu is not registered (misspelt_operator, line"),
    ("patterns.pointwise_reasons", lambda match: [], "a 3x3 kernel is taken"),
    ("patterns.pointwise_reasons", refuse_by_side(2), "a 1x3 kernel is taken"),
    ("patterns.pointwise_reasons", refuse_by_side(3), "a 3x1 kernel is taken"),
    ("patterns.pointwise_reasons", refuse_by_side(2, "dtype"), "the rule is 'dtype', expected 'attribute'"),
    ("patterns.first_wins", 3, "too large"),
    ("patterns.taken_by", "example_npu.conv2d", "is not it"),
    ("patterns.taken_by", "depthwise_conv2d_activation_fused", "is not it yet: it is the end of the full name"),
    ("partition.cut", fuse_only(one_by_one=True), "has 2 regions, expected 1"),
    ("partition.cut", fuse_only(one_by_one=False), "has 0 regions, expected 1"),
    ("partition.cut", lambda model: 3, "expected an IRModule"),
    ("partition.places", lambda module: {}, "'main:0' is missing"),
    ("partition.saved_bytes", 32 * 32 * 32 * 4, "too small"),
    ("partition.largest_size", 512, "too large"),
    ("partition.bytes_kept", lambda graph: 0, "found 0"),
    ("codegen.nodes", lambda region: [{"op": "input", "name": p.name} for p in region.params], "found 2 elements"),
    ("codegen.nodes", nodes_by_region_order, "its parameters turned round): element 2: key 'inputs'"),
    ("codegen.row_pointers", lambda nodes: list(range(len(nodes) + 1)), "element 2: found 2, expected 4"),
    ("codegen.constant_nodes", 5, "too small"),
    ("codegen.macs_of", lambda graph: len(graph.kernels), "found 2"),
    ("runtime.tile_count", 6, "too small"),
    ("runtime.load", lambda tile, piece: piece, "in a new array"),
    ("runtime.load", load_forgotten, "is a return missing?"),
    ("runtime.load", load_dirty, "found 7.0, expected 0.0"),
    ("runtime.tiled_matmul", lambda a, b, memory: a @ b, "matmul of an array in DRAM"),
    ("runtime.tiled_matmul", lambda a, b, memory: a.dot(b), "dot of an array in DRAM"),
    ("runtime.tiled_matmul", lambda a, b, memory: np.einsum("ij,jk", a, b), "einsum of an array in DRAM"),
    ("runtime.tiled_matmul", aside("L1", "L0"), "no view of L1 holds a piece of a"),
    ("runtime.tiled_matmul", tiled(load=load_elsewhere), "no view of L1 holds a piece of a"),
    ("runtime.tiled_matmul", tiled(far_sum=True), "no view of L0 holds a tile of the product"),
    ("runtime.tiled_matmul", tiled(load=load_dirty), "found nan"),
    ("runtime.tiled_matmul", tiled(clear_tile=False), "found nan"),
    ("runtime.tiled_matmul", tiled(clear_chunk=True), "33x300 times 300x7"),
    ("runtime.loop_bytes", lambda m, k, n, tile: 4 * (m * k + k * n + m * n), "(64, 32, 32, 32)"),
    ("runtime.patches", lambda image, kernel: image, "shape"),
    ("runtime.padded_share", 0.5, "too large"),
    ("runtime.tiled_matmul_relu", tiled(), "expected 0.0"),
    ("runtime.tiled_matmul_relu", late_relu, "no view of L0 holds a tile of the relu"),
    ("runtime.tiled_matmul_relu", lambda a, b, memory: np.maximum(aside("L1", "L0")(a, b, memory), 0), "no view of L1"),
]


@pytest.mark.parametrize(("name", "answer", "told"), WRONG_ANSWERS, ids=[f"{n}-{t}" for n, _, t in WRONG_ANSWERS])
def test_a_wrong_answer_is_wrong_and_the_learner_is_told_why(name, answer, told):
    outcome = check(name, answer)
    assert outcome.state == WRONG
    assert told in outcome.message


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("patterns.conv_bias_relu", pattern(lambda anchor, bias: ...)),
        ("patterns.bias_reasons", lambda match: ...),
        ("partition.cut", lambda model: None),
        ("codegen.nodes", lambda region: None),
        ("runtime.load", lambda tile, piece: None),
        ("runtime.tiled_matmul", lambda a, b, memory: ...),
    ],
)
def test_a_stub_as_the_lesson_has_it_is_not_done_yet(name, answer):
    assert check(name, answer).state == NOT_YET


def test_the_tiled_product_without_faults_is_right():
    assert check("runtime.tiled_matmul", tiled())


def test_messages_name_the_model_and_not_its_text():
    for name in ("partition.places", "codegen.nodes", "codegen.macs_of", "partition.bytes_kept", "start.host_reasons"):
        message = check(name, lambda anything: anything.nothing).message
        assert " raised AttributeError" in message
        assert len(message.partition(" raised ")[0]) < 70
        assert "Hint" not in message
