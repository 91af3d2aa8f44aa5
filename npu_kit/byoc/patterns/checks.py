"""Checks of a match: each returns the reasons against it, none if there are none.

TVM asks a check for a bool. ``accept`` gives it ``not refusals`` and keeps the reasons, so that the report of a
partition can say why a call stayed on the host. A pattern of one's own takes ``check_match``, which holds for
every pattern of the kit, and adds its own::

    def check(context):
        return accept(check_match(Match(context, spec), check_few_channels))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.backend.utils import has_leaking_intermediate_variables

from npu_kit.byoc.model.calls import describe_type, find_definition, relax_name, result_of, shape_of, tensor_type
from npu_kit.byoc.patterns.call_checks import check_attributes, check_dtypes, check_scales, check_shapes
from npu_kit.byoc.patterns.match import Match
from npu_kit.byoc.patterns.memory_check import check_memory
from npu_kit.byoc.report import Refusal

Check = Callable[[Match], list[Refusal]]


def check_match(match: Match, *specific: Check) -> list[Refusal]:
    """What holds for any pattern of the kit, and ``specific`` checks of one pattern.

    First each call must be one that the NPU computes; then the parts must go together; then nothing inside may be used
    outside; last the planner says whether it fits. A later question is asked only where the earlier ones are settled.
    """
    return (
        check_calls(match)
        or [reason for check in specific for reason in check(match)]
        or check_flow(match)
        or check_memory(match)
    )


def check_calls(match: Match) -> list[Refusal]:
    """Each call alone: known operation, dtypes, shapes; then its attributes and scales."""
    unknown = [relax_name(call) for call in match.calls if find_definition(call) is None]
    if unknown:
        return [Refusal("operand", "operations of the kit only", unknown[0], "a pattern without it")]
    types = [reason for call in match.calls for reason in (*check_dtypes(match, call), *check_shapes(call))]
    values = (reason for call in match.calls for reason in (*check_attributes(call), *check_scales(call)))
    return list(dict.fromkeys(types or values))


def check_flow(match: Match) -> list[Refusal]:
    """Nothing inside the match may be used outside, least of all by something the match itself waits for."""
    return check_cycle(match.context) or check_leak(match)


def check_leak(match: Match) -> list[Refusal]:
    """A composite returns its root only: an intermediate that something else reads must stay out of it."""
    if not has_leaking_intermediate_variables(match.context):
        return []
    context = match.context
    output = context.value_to_bound_var[match.root]
    inside = set(context.matched_bindings)
    for var in sorted(inside - {output}, key=lambda var: str(var.name)):
        users = [str(user.name) for user in context.var_usages.get(var, ()) if user not in inside]
        if users or not isinstance(var, relax.DataflowVar):
            reader = f"is read by {', '.join(users)}" if users else "is a result of the function"
            found = f"{var.name} {reader}"
            return [Refusal("leak", "intermediates that only the match reads", found, "a shorter pattern")]
    return []


def check_cycle(context: Any) -> list[Refusal]:
    """An operand must not depend on the match itself through something outside; TVM's fusion raises on that."""
    inside = set(context.matched_bindings)
    if len(inside) < 2:
        return []
    operands = {
        operand
        for value in context.matched_bindings.values()
        if isinstance(value, relax.Call)
        for operand in value.args
        if isinstance(operand, relax.Var) and operand not in inside
    }
    output = context.value_to_bound_var[context.matched_expr]
    inner = sorted(inside - {output}, key=lambda var: str(var.name))
    pending = [(var, user) for var in inner for user in context.var_usages.get(var, ())]
    seen: set[Any] = set()
    while pending:
        source, var = pending.pop()
        if var in inside or var in seen:
            continue
        seen.add(var)
        if var in operands:
            found = f"{var.name}, which is computed from {source.name} inside the match"
            return [Refusal("cycle", "operands that do not depend on the match", found, "a pattern that ends earlier")]
        pending.extend((source, user) for user in context.var_usages.get(var, ()))
    return []


def check_bias(match: Match) -> list[Refusal]:
    """The operand labelled ``bias`` holds one value for each output channel of the operation labelled ``anchor``."""
    bias, anchor = match.labelled("bias"), match.labelled("anchor")
    shape, output = shape_of(bias), shape_of(anchor)
    if shape is None or output is None:
        return []
    axis = channel_axis(anchor)
    aligned = (1,) * (len(output) - len(shape)) + shape
    wanted = tuple(size if position == axis else 1 for position, size in enumerate(output))
    if aligned == wanted:
        return []
    needed = f"a bias of {output[axis] if output else 1} values along axis {axis}, {'x'.join(map(str, wanted))}"
    return [Refusal("operand", needed, describe_type(bias.ty), "a reshape, or a separate add")]


def check_residual(match: Match) -> list[Refusal]:
    """The operand labelled ``residual`` has the shape of the result: it is added element by element."""
    residual = match.labelled("residual")
    found, wanted = tensor_type(residual), tensor_type(result_of(match.labelled("anchor")))
    if found is None or wanted is None or found == wanted:
        return []
    return [Refusal("operand", f"a residual of {wanted}", str(found), "a separate add")]


def check_relu6(match: Match) -> list[Refusal]:
    """relu6 is the clip from exactly 0 to exactly 6."""
    low, high = (float(getattr(bound, "value", math.nan)) for bound in match.root.args[1:3])
    if (low, high) == (0.0, 6.0):
        return []
    return [Refusal("attribute", "a clip from 0 to 6", f"{low:g} to {high:g}", "the pattern example_npu.clip")]


def check_dense(match: Match) -> list[Refusal]:
    """A dense layer multiplies by a 2-D weight, which is a constant or a parameter of the function."""
    weight = match.root.args[1]
    shape = shape_of(weight)
    is_computed = isinstance(weight, relax.Var) and weight in set(match.context.value_to_bound_var.values())
    if shape is not None and len(shape) == 2 and not is_computed:
        return []
    found = f"{describe_type(weight.ty)}{', computed by the model' if is_computed else ''}"
    return [Refusal("operand", "a 2-D constant or parameter as weight", found, "the pattern example_npu.matmul")]


def check_follows(match: Match) -> list[Refusal]:
    """A reshape moves nothing where the NPU made its input and the model goes on with it; elsewhere the host does it.

    By the time this pattern is tried, the last of the table, what the NPU takes has become calls of composites.
    """
    context = match.context
    makers = (value for value, var in context.value_to_bound_var.items() if var.same_as(match.root.args[0]))
    if not any(isinstance(value, relax.Call) and isinstance(value.op, relax.GlobalVar) for value in makers):
        found = "an operand that comes from elsewhere"
    elif not context.var_usages.get(context.value_to_bound_var[match.root], ()):
        found = "a result of the model"
    else:
        return []
    needed = "an operand that the NPU has made, and more to do with it"
    return [Refusal("operand", needed, found, "the host, where a reshape costs nothing")]


def check_depthwise(match: Match) -> list[Refusal]:
    """A depthwise convolution filters every input channel on its own: groups == input channels > 1."""
    call = match.labelled("anchor")
    shape, layout = shape_of(call.args[0]), str(call.attrs.data_layout)
    if shape is None or len(shape) != len(layout) or "C" not in layout:
        return []
    channels, groups = shape[layout.index("C")], int(call.attrs.groups)
    if groups == channels > 1:
        return []
    needed = f"one group for each of the {channels} input channels" if channels > 1 else "more than 1 input channel"
    return [Refusal("attribute", needed, f"groups={groups}", "the pattern example_npu.conv2d")]


def channel_axis(call: Any) -> int:
    """The axis of a contraction's result that runs over output channels: the last one of a matmul."""
    layout = getattr(call.attrs, "data_layout", None)
    shape = shape_of(call) or ()
    return len(shape) - 1 if layout is None else str(layout).index("C")
