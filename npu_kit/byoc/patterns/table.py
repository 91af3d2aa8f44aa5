"""The kit's pattern table: what one composite may hold, the most specific pattern first.

A pattern is an anchor (the operation that does the work) and a tail (what follows it and can be computed on the tile
before it leaves the chip), or one operation, or a quantized chain. ``FuseOpsByPattern`` takes the first match of a
list, so the order of the table is the priority.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.relax.backend.pattern_registry import register_patterns
from tvm.relax.dpl import is_op, is_tuple_get_item, wildcard
from tvm.relax.transform import FusionPattern

from npu_kit.byoc import BACKEND
from npu_kit.byoc.patterns.checks import (
    Check,
    check_bias,
    check_dense,
    check_depthwise,
    check_follows,
    check_match,
    check_relu6,
    check_residual,
)
from npu_kit.byoc.patterns.match import Match
from npu_kit.byoc.patterns.refusals import accept
from npu_kit.graph.definition import OpDef
from npu_kit.graph.ops import OPS
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec

Built = tuple[Any, dict[str, Any]]  # a dataflow pattern and its labelled parts
Row = tuple[str, Any, dict[str, Any], Callable[[Any], bool]]
Stage = Callable[[Any, dict[str, Any]], Any]  # puts one more operation behind a pattern, and labels its parts


@dataclass(frozen=True)
class PatternInfo:
    """One row of the table, for views and for ``pattern_table``."""

    name: str  # with the prefix: "example_npu.conv2d_relu_fused"
    summary: str  # one line
    ops: tuple[str, ...]  # Relax operators, in order; "a | b" where either will do
    builds: tuple[Callable[[], Built], ...]  # one per order of operands
    checks: tuple[Check, ...]  # after check_match, which holds for every row


# --- Parts: each returns the pattern with one more operation behind it ------------------------------------------------

ACTIVATIONS = tuple(
    definition for definition in OPS.values() if definition.engine == "activation" and definition.is_unary_elementwise
)


def _call(definition: OpDef, *operands: Any) -> Any:
    """A call of an operation; what Relax has among the arguments besides tensors may be anything."""
    arguments = (wildcard() for _ in definition.arguments)
    return is_op(definition.relax_name)(*operands, *arguments, varg_default_wildcard=definition.has_more_arguments)


def _bias(pattern: Any, labels: dict[str, Any]) -> Any:
    # ONNX writes add(conv, bias), torch.export writes add(bias, conv).
    labels["bias"] = wildcard()
    return is_op("relax.add")(pattern, labels["bias"]) | is_op("relax.add")(labels["bias"], pattern)


def _dequantized_bias(pattern: Any, labels: dict[str, Any]) -> Any:
    labels["bias"] = _dequantize()
    return is_op("relax.add")(pattern, labels["bias"]) | is_op("relax.add")(labels["bias"], pattern)


def _dequantize() -> Any:
    return is_op("relax.dequantize")(wildcard(), wildcard(), wildcard())


def _batch_norm(pattern: Any, labels: dict[str, Any]) -> Any:
    return is_op("relax.nn.batch_norm")(pattern, wildcard(), wildcard(), wildcard(), wildcard())


def _residual(pattern: Any, labels: dict[str, Any]) -> Any:
    labels["residual"] = wildcard()
    return is_op("relax.add")(pattern, labels["residual"])


def _residual_first(pattern: Any, labels: dict[str, Any]) -> Any:
    labels["residual"] = wildcard()
    return is_op("relax.add")(labels["residual"], pattern)


def _relu(pattern: Any, labels: dict[str, Any]) -> Any:
    return is_op("relax.nn.relu")(pattern)


def _activation(pattern: Any, labels: dict[str, Any]) -> Any:
    alternatives = [_call(definition, pattern) for definition in ACTIVATIONS]
    return functools.reduce(lambda left, right: left | right, alternatives)


STAGES: Mapping[str, tuple[tuple[Stage, ...], str, tuple[Check, ...]]] = {
    # name: (one builder per operand order that has to be tried on its own, operators, checks)
    "bias": ((_bias,), "relax.add", (check_bias,)),
    "bn": ((_batch_norm,), "relax.nn.batch_norm", ()),
    "dequantized_bias": ((_dequantized_bias, _bias), "relax.add", (check_bias,)),
    "residual": ((_residual, _residual_first), "relax.add", (check_residual,)),
    "relu": ((_relu,), "relax.nn.relu", ()),
    "activation": ((_activation,), " | ".join(definition.relax_name for definition in ACTIVATIONS), ()),
}

# --- The table --------------------------------------------------------------------------------------------------------

ANCHORS: Mapping[str, tuple[str, int, tuple[Check, ...]]] = {
    # name: (operator, tensor operands, checks); depthwise is the special case of conv2d, so it comes first
    "depthwise_conv2d": ("relax.nn.conv2d", 2, (check_depthwise,)),
    "conv2d": ("relax.nn.conv2d", 2, ()),
    "conv1d": ("relax.nn.conv1d", 2, ()),
    "matmul": ("relax.matmul", 2, ()),
    "add": ("relax.add", 2, ()),
    "multiply": ("relax.multiply", 2, ()),
    "max_pool2d": ("relax.nn.max_pool2d", 1, ()),
    "avg_pool2d": ("relax.nn.avg_pool2d", 1, ()),
}
CONVOLUTIONS = ("depthwise_conv2d", "conv2d", "conv1d")
CONTRACTIONS = (*CONVOLUTIONS, "matmul")

TAILS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    # (what follows the anchor, anchors)
    (("bias", "bn", "residual", "activation"), CONVOLUTIONS),
    (("bn", "residual", "activation"), CONVOLUTIONS),
    (("bias", "residual", "activation"), CONTRACTIONS),
    (("bias", "bn", "activation"), CONVOLUTIONS),
    (("bias", "bn", "residual"), CONVOLUTIONS),
    (("residual", "activation"), CONTRACTIONS),
    (("bn", "activation"), CONVOLUTIONS),
    (("bias", "activation"), CONTRACTIONS),
    (("bn", "residual"), CONVOLUTIONS),
    (("bias", "residual"), CONTRACTIONS),
    (("bias", "bn"), CONVOLUTIONS),
    (("relu",), CONTRACTIONS),
    (("activation",), CONTRACTIONS),
    (("residual",), CONTRACTIONS),
    (("bn",), CONVOLUTIONS),
    (("bias",), CONTRACTIONS),
)

QUANTIZED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    # the same between a dequantize of every operand and a quantize: what an integer kernel computes in one go
    (("dequantized_bias", "activation"), CONTRACTIONS),
    (("dequantized_bias",), CONTRACTIONS),
    (("activation",), (*CONTRACTIONS, "add")),
    ((), (*CONTRACTIONS, "add", "multiply", "max_pool2d", "avg_pool2d")),
)

# A single whose check wants more than the operation comes before the one that takes it all.
SPECIAL_SINGLES: tuple[tuple[str, str, str, tuple[Check, ...]], ...] = (
    # name, operation, summary, checks
    ("dense", "matmul", "matmul with a weight: a 2-D constant or parameter", (check_dense,)),
    ("depthwise_conv2d", "conv2d", "conv2d that filters each channel alone", (check_depthwise,)),
    ("relu6", "clip", "clip from 0 to 6", (check_relu6,)),
)


def pattern_infos() -> tuple[PatternInfo, ...]:
    """The whole table, most specific first."""
    return _INFOS


def pattern_table(spec: NpuSpec | str = "example") -> list[FusionPattern]:
    """The list for ``FuseOpsByPattern``: the patterns of the table, their checks bound to ``spec``.

    A row with several operand orders gives several patterns of one name.
    """
    return [FusionPattern(*row) for row in pattern_rows(load_spec(spec))]


def pattern_rows(spec: NpuSpec) -> list[Row]:
    """The same as tuples ``(name, pattern, labels, check)``, in which a check is still a Python function."""
    return [(info.name, *_built(build), _bind_checks(info.checks, spec)) for info in _INFOS for build in info.builds]


@functools.cache
def _built(build: Callable[[], Built]) -> Built:
    """What ``build`` returns, made once: patterns do not depend on the machine, and nothing writes to one."""
    return build()


def register(spec: NpuSpec | str = "example") -> list[str]:
    """Put the table into TVM's registry, where ``get_patterns_with_prefix("example_npu")`` finds it.

    The kit itself passes its list explicitly and never needs this. In the registry the later pattern wins, so the table
    goes in reversed, and what was registered under the prefix before stays behind it.

    Returns:
        the registered names, in order of priority.
    """
    rows = pattern_rows(load_spec(spec))
    register_patterns(list(reversed(rows)))
    return [name for name, *_ in rows]


def _bind_checks(checks: tuple[Check, ...], spec: NpuSpec) -> Callable[[Any], bool]:
    def check(context: Any) -> bool:
        return accept(check_match(Match(context, spec), *checks))

    return check


def _chain(op: str, operands: int, stages: tuple[Stage, ...], quantized: bool) -> Callable[[], Built]:
    """A builder of: anchor ``op``, then ``stages`` in order; between dequantize and quantize where ``quantized``."""

    def build() -> Built:
        operand = _dequantize if quantized else wildcard
        anchor = is_op(op)(*(operand() for _ in range(operands)))
        labels = {"anchor": anchor}
        pattern = anchor
        for stage, following in itertools.zip_longest(stages, stages[1:]):
            pattern = stage(pattern, labels)
            if stage is _batch_norm and following is not None:
                # Relax's batch norm returns three tensors. A pattern must end in a call, so at the end all three leave.
                pattern = is_tuple_get_item(pattern, 0)
        if quantized:
            pattern = is_op("relax.quantize")(pattern, wildcard(), wildcard())
        return pattern, {**labels, "root": pattern}

    return build


def _orders(tail: tuple[str, ...]) -> list[tuple[Stage, ...]]:
    """Every choice of one builder per stage."""
    choices: list[tuple[Stage, ...]] = [()]
    for name in tail:
        choices = [(*chosen, stage) for chosen in choices for stage in STAGES[name][0]]
    return choices


def _fused(anchor: str, tail: tuple[str, ...], quantized: bool = False) -> PatternInfo:
    op, operands, checks = ANCHORS[anchor]
    tail_ops = tuple(STAGES[name][1] for name in tail)
    tail_checks = tuple(check for name in tail for check in STAGES[name][2])
    ops = ("relax.dequantize", op, *tail_ops, "relax.quantize") if quantized else (op, *tail_ops)
    words = [name.removeprefix("dequantized_") for name in (anchor, *tail)]
    listed = ", ".join(["dequantize", *words, "quantize"] if quantized else words)
    return PatternInfo(
        name=f"{BACKEND}." + "_".join(["quantized", *words, "fused"] if quantized else [*words, "fused"]),
        summary=f"{listed} in one composite",
        ops=ops,
        builds=tuple(_chain(op, operands, stages, quantized) for stages in _orders(tail)),
        checks=(*checks, *tail_checks),
    )


def _single(name: str, definition: OpDef, summary: str, checks: tuple[Check, ...]) -> PatternInfo:
    def build() -> Built:
        pattern = _call(definition, *(wildcard() for _ in range(definition.arity)))
        return pattern, {"anchor": pattern, "root": pattern}

    return PatternInfo(f"{BACKEND}.{name}", summary, (definition.relax_name,), (build,), checks)


_INFOS = (
    *(_fused(anchor, tail, quantized=True) for tail, anchors in QUANTIZED for anchor in anchors),
    *(_fused(anchor, tail) for tail, anchors in TAILS for anchor in anchors),
    *(_single(name, OPS[op], summary, checks) for name, op, summary, checks in SPECIAL_SINGLES),
    *(
        _single(name, definition, definition.summary, (check_follows,) if definition.family == "reshape" else ())
        for name, definition in OPS.items()
    ),
)
