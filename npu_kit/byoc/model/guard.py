"""Refuses models that end TVM's process, or that TVM builds without an error and wrong. One place for all of it.

Each rule was seen on the apache-tvm 0.27 wheel; the message says what happens there. Every refusal is UnsupportedError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from npu_kit.byoc.model import calls
from npu_kit.byoc.model.walk import model_functions, operators_in, walk_calls
from npu_kit.errors import UnsupportedError
from npu_kit.runtime.arithmetic import check_scale

# TVM's passes recurse: an expression nested about 5,000 deep ends the process. A chain of bindings is not nested.
MAX_DEPTH = 1_000
# Of an If inside a branch of an If. Their passes take far more of the stack there: at 900 the process ends.
MAX_BRANCH_DEPTH = 100

_DIVISIONS = ("relax.divide", "relax.floor_divide", "relax.mod", "relax.floor_mod")
_CONVOLUTIONS = tuple(f"relax.nn.conv{axes}d{kind}" for axes in (1, 2, 3) for kind in ("", "_transpose"))

Rule = Callable[[Any], str]  # what happens with this call, "" if nothing does


def verify_depth(mod: IRModule) -> None:
    """Raise UnsupportedError if an expression is nested deeper than ``MAX_DEPTH``, or an If than ``MAX_BRANCH_DEPTH``.

    To be called before any pass.
    """
    for var, function in mod.functions.items():
        if isinstance(function, relax.Function):
            what = f"an expression in {var.name_hint}"
            hint = (
                "binding the steps to variables, as BlockBuilder.emit does; a chain of bindings can be of any length."
            )
            _verify_nesting(what, nesting_depth(function), MAX_DEPTH, hint)
            hint = "a loop outside of the model, around run."
            _verify_nesting(f"an If in {var.name_hint}", _branch_depth(function), MAX_BRANCH_DEPTH, hint)


def _verify_nesting(what: str, depth: int, limit: int, hint: str) -> None:
    if depth > limit:
        raise UnsupportedError(
            what,
            f"it is nested {depth:,} deep, and TVM's passes recurse: the kit stops at {limit:,}, before the "
            "process ends",
            hint,
        )


def verify_closures(mod: IRModule) -> None:
    """Raise UnsupportedError if an inner function reads a variable around it; to be called after LambdaLift."""
    if "relax.make_closure" in operators_in(mod):
        raise UnsupportedError(
            "a function inside a function reads a variable of the outer one",
            "TVM makes a closure of it, and cannot build closures",
            "that variable as a parameter of the inner function.",
        )


def verify_splits(mod: IRModule) -> None:
    """Raise UnsupportedError if a split has parts that are none; to be called before splits are written as slices."""
    _verify_calls(mod, {"relax.split": _check_split}, "")


def _check_split(call: Any) -> str:
    given, shape = call.attrs.indices_or_sections, calls.shape_of(call.args[0])
    if isinstance(given, int | tirx.IntImm) or shape is None:
        return _check_sizes(call)
    size = shape[int(call.attrs.axis) % len(shape)]
    at = [0, *map(int, given), size]
    if at == sorted(at):
        return ""
    return f"it is split at {', '.join(map(str, at[1:-1]))} of {size}, where TVM infers sizes that are wrong"


def _check_sizes(call: Any) -> str:
    """TVM infers negative sizes, and builds code that then finds no memory of such a size."""
    lowest = min(_sizes(call.ty), default=0)
    return f"its result would have a size of {lowest:,}" if lowest < 0 else ""


def _sizes(ty: Any) -> Iterator[int]:
    """The known sizes of a tensor, or of the tensors of a tuple."""
    if isinstance(ty, relax.TupleType):
        for one in ty.fields:
            yield from _sizes(one)
    elif isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        yield from (int(size) for size in ty.shape.values if isinstance(size, tirx.IntImm))


def verify_export(mod: IRModule) -> None:
    """Raise UnsupportedError if a constant has no elements though its first axis has: TVM cannot load it again.

    Args:
        mod: a partitioned module, with what is on the NPU.
    """
    sizes: list[tuple[int, ...] | None] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, ir.GenericConst):
            sizes.append(calls.shape_of(expr))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    lost = next((shape for shape in sizes if shape and shape[0] and 0 in shape), None)
    if lost is not None:
        raise UnsupportedError(
            f"exporting a constant of {'x'.join(map(str, lost))}",
            "it has no elements, and TVM writes it into a library that it cannot load",
            f"relax.op.zeros({lost}, dtype), which makes it where the model runs.",
        )


def verify_divisors(mod: IRModule) -> None:
    """Raise UnsupportedError if an integer is divided by a constant 0: neither side can compute that."""
    _verify_calls(mod, dict.fromkeys(_DIVISIONS, _check_zero_divisor), "")


def verify_host(mod: IRModule) -> None:
    """Raise UnsupportedError if the part that the host computes holds what TVM builds wrong.

    Args:
        mod: a partitioned module: what is on the NPU is not looked at.
    """
    _verify_calls(mod, _ON_HOST, " on the host", _check_sizes)
    for var, function in mod.functions.items():
        if isinstance(function, tirx.PrimFunc) and _divides_by_a_tensor(function):
            raise UnsupportedError(
                f"the loops of {var.name_hint} on the host",
                "they divide integers by elements of a tensor, and a 0 among them ends the process",
                "partitioning the model before LegalizeOps: the NPU raises ZeroDivisionError there.",
            )


def _divides_by_a_tensor(function: Any) -> bool:
    """Whether a PrimFunc divides integers by what it loads; this wheel has no visitor for its statements in Python."""
    nodes = json.loads(ir.save_json(function))["nodes"]
    for node in nodes:
        if node["type"] in ("prim.Div", "prim.Mod", "prim.FloorDiv", "prim.FloorMod"):
            divisor = nodes[node["data"]["b"]]
            while divisor["type"] == "prim.Cast":
                divisor = nodes[divisor["data"]["value"]]
            if divisor["type"] == "ir.TensorLoad" and "int" in json.dumps(nodes[node["data"]["ty"]]):
                return True
    return False


def verify_recursion(mod: IRModule) -> None:
    """Raise UnsupportedError if a function of the model calls itself, also through others."""
    called = {
        str(var.name_hint): {
            str(call.op.name_hint) for call, _ in walk_calls(function) if isinstance(call.op, ir.GlobalVar)
        }
        for var, function in model_functions(mod)
    }
    for name in called:
        reached, waiting = set[str](), list(called[name])
        while waiting:
            other = waiting.pop()
            if other not in reached:
                reached.add(other)
                waiting.extend(called.get(other, ()))
        if name in reached:
            raise UnsupportedError(
                f"function {name} of the model",
                "it calls itself, and TVM's code generation follows calls until the process ends",
                "a loop outside of the model, around run.",
            )


def nesting_depth(function: Any) -> int:
    """How deep calls stand inside arguments of calls, without recursion; 1 where every value is bound."""
    depths: dict[Any, int] = {}
    pending: list[tuple[Any, bool]] = [(function, False)]
    deepest = 0
    while pending:
        expr, is_done = pending.pop()
        parts = list(_parts(expr))
        if is_done:
            own = 1 if isinstance(expr, relax.Call | relax.Tuple | relax.TupleGetItem) else 0
            depths[expr] = own + max((depths[part] for part in parts), default=0) if own else 0
            deepest = max(deepest, depths[expr])
        elif expr not in depths:
            pending.append((expr, True))
            pending.extend((part, False) for part in parts if part not in depths)
    return deepest


def _branch_depth(function: Any) -> int:
    """How deep an If stands inside branches of an If, and a function inside functions, without recursion."""
    pending: list[tuple[Any, int]] = [(function, -1)]  # which is none of them itself
    deepest = 0
    while pending:
        expr, depth = pending.pop()
        inner = depth + isinstance(expr, relax.If | relax.Function)
        deepest = max(deepest, depth)
        pending.extend((part, inner) for part in _parts(expr) if isinstance(part, _NESTING))
    return deepest


def _verify_calls(mod: IRModule, rules: Mapping[str, Rule], where: str, of_any: Rule = lambda _: "") -> None:
    for var, function in model_functions(mod):
        for call, bound in walk_calls(function):
            name = calls.relax_name(call)
            problem = of_any(call) or (rules[name](call) if name in rules else "")
            if problem:
                what = f"{name} of {calls.describe_type(call.ty)}, variable {bound.var.name} of {var.name_hint}{where}"
                raise UnsupportedError(what, problem, "a model without it, or TVM's own relax.build, at that risk.")


def _check_zero_divisor(call: Any) -> str:
    divisor = calls.constant_value(call.args[1])
    if not _is_integer(call) or divisor is None or divisor.all():
        return ""
    return "an integer is divided by a constant 0, which ends the process in LLVM's code, or fails at build"


def _check_division(call: Any) -> str:
    dtype, divisor = calls.dtype_of(call), calls.constant_value(call.args[1])
    if not _is_integer(call) or _check_zero_divisor(call):
        return _check_zero_divisor(call)
    if divisor is not None and (dtype.startswith("uint") or (divisor != -1).all()):
        return ""
    found = "not a constant" if divisor is None else "a constant that holds one"
    return f"dividing {dtype} by 0, or the lowest {dtype} by -1, ends the process there, and the divisor is {found}"


def _is_integer(call: Any) -> bool:
    return calls.dtype_of(call).startswith(("int", "uint"))


def _check_scale(call: Any) -> str:
    scale = calls.constant_value(call.args[1])
    problems = check_scale(scale) if scale is not None else []
    return f"{'; '.join(problems)}, and TVM computes garbage with it or cannot build it" if problems else ""


def _check_quantize(call: Any) -> str:
    dtype, computed_in = calls.dtype_of(call), {calls.dtype_of(operand) for operand in call.args[:2]}
    if computed_in == {"float16"} and dtype in ("int16", "uint16"):
        return f"TVM saturates a float16 in float16, which has no {np.iinfo(dtype).max:,}: the results wrap"
    return _check_scale(call)


def _check_convolution(call: Any) -> str:
    if outside := _check_reach(call, calls.shape_of(call.args[1]) or ()):
        return outside
    layout, out_layout = str(call.attrs.data_layout), str(call.attrs.out_layout)
    if not layout.isalpha() or out_layout not in ("", layout):
        return f"TVM cannot build {layout} to {out_layout or layout}, only plain layouts, and the same for the result"
    sizes = dict(zip(str(call.attrs.kernel_layout), calls.shape_of(call.args[1]) or (), strict=False))
    if sizes.get("I") == 0:
        return "TVM leaves the result of 0 input channels unwritten"
    is_empty = any(size == 0 for axis, size in sizes.items() if axis != "O")
    return "TVM leaves the result of a kernel of size 0 unwritten" if is_empty else ""


def _check_pool(call: Any) -> str:
    layout, out_layout = str(call.attrs.layout), str(call.attrs.out_layout)
    if out_layout not in ("", layout):
        return f"TVM cannot build {layout} to {out_layout}, only the same layout for the result"
    lowest = min(int(size) for size in (*call.attrs.pool_size, *call.attrs.strides))
    if lowest < 1:
        return f"TVM returns memory it never wrote for a window or stride of {lowest}"
    return _check_reach(call, call.attrs.pool_size)


def _check_reach(call: Any, window: Iterable[Any]) -> str:
    dilation = [int(step) for step in call.attrs.dilation]
    if min(dilation) < 0:
        return f"TVM reads memory beside the tensor for a dilation of {min(dilation)}"
    reach = max(dilation) * max(map(int, window), default=0)
    return f"TVM counts the {reach:,} elements that a window reaches over in 32 bits" if reach >= 1 << 31 else ""


def _check_pad(call: Any) -> str:
    """Padding that is made of elements needs so many of them; where the result is empty, none is ever read."""
    mode, shape, out = str(call.attrs.pad_mode), calls.shape_of(call.args[0]), calls.shape_of(call)
    if shape is None or out is None or 0 in out or mode == "constant":
        return ""
    widths = [int(width) for width in call.attrs.pad_width]
    for size, *both in zip(shape, widths[::2], widths[1::2], strict=True):
        wanted = max(both)
        if (mode == "reflect" and wanted >= size) or (size == 0 and wanted > 0):
            return f"TVM reads memory beside the tensor for {wanted:,} elements by {mode} along an axis of {size}"
    return ""


def _check_mean(call: Any) -> str:
    declared = calls.dtype_of(call)
    returned = "float32" if calls.relax_name(call) == "relax.std" else "uint64" if declared == "uint64" else "int64"
    if declared == returned or not (_is_integer(call) or declared == "bool"):
        return ""
    return f"TVM returns {returned} where {declared} is declared"


def _check_extremum(call: Any) -> str:
    data, out = calls.shape_of(call.args[0]), calls.shape_of(call)
    is_unwritten = data is not None and out is not None and 0 in data and 0 not in out
    return "there are no elements to choose from, and TVM leaves the result unwritten" if is_unwritten else ""


def _check_avg_pool(call: Any) -> str:
    dtype = calls.dtype_of(call)
    if _is_integer(call) and dtype != "int64":
        return f"TVM wraps the sums of {dtype} and returns int64 where {dtype} is declared"
    return _check_pool(call)


def _check_batch_norm(call: Any) -> str:
    is_half = calls.dtype_of(calls.result_of(call)) == "float16"
    return "TVM returns float32 where float16 is declared" if is_half else ""


def _check_layer_norm(call: Any) -> str:
    if call.attrs.center and call.attrs.scale:
        return ""
    return "TVM multiplies by gamma and adds beta, whatever center and scale say"


def _check_rms_norm(call: Any) -> str:
    rank = int(call.args[0].ty.ndim)
    axes = sorted(int(axis) % rank for axis in call.attrs.axes) if rank > 0 else []
    if rank < 0 or (len(axes) < rank and axes == list(range(rank - len(axes), rank))):
        return ""
    return f"TVM builds an rms_norm only over the last axes, with one before them, and here it is over {axes} of {rank}"


_ON_HOST: Mapping[str, Rule] = {
    **dict.fromkeys(_DIVISIONS, _check_division),
    **dict.fromkeys(_CONVOLUTIONS, _check_convolution),
    "relax.quantize": _check_quantize,
    "relax.dequantize": _check_scale,
    **{f"relax.nn.max_pool{axes}d": _check_pool for axes in (1, 2, 3)},
    **{f"relax.nn.avg_pool{axes}d": _check_avg_pool for axes in (1, 2, 3)},
    **dict.fromkeys(("relax.mean", "relax.variance", "relax.std"), _check_mean),
    **dict.fromkeys(("relax.max", "relax.min"), _check_extremum),
    "relax.nn.pad": _check_pad,
    "relax.nn.batch_norm": _check_batch_norm,
    "relax.nn.layer_norm": _check_layer_norm,
    "relax.nn.rms_norm": _check_rms_norm,
}


_NESTING = (relax.If, relax.Function, relax.SeqExpr)


def _parts(expr: Any) -> Iterator[Any]:
    if isinstance(expr, relax.Function):
        yield expr.body
    elif isinstance(expr, relax.SeqExpr):
        yield from (binding.value for block in expr.blocks for binding in block.bindings)
        yield expr.body
    elif isinstance(expr, relax.If):
        yield from (expr.cond, expr.true_branch, expr.false_branch)
    elif isinstance(expr, relax.Call | relax.Tuple):
        operands = expr.args if isinstance(expr, relax.Call) else expr.fields
        yield from (part for part in operands if isinstance(part, relax.Call | relax.Tuple | relax.TupleGetItem))
    elif isinstance(expr, relax.TupleGetItem):
        yield expr.tuple_value
