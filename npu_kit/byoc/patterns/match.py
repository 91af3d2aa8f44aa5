"""One match of a pattern, as a check sees it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tvm import relax

from npu_kit.byoc.model.calls import relax_name, tensor_operands
from npu_kit.hw.spec import NpuSpec


class Match:
    """One match of a pattern, as a check sees it.

    Args:
        context: TVM's PatternCheckContext.
        spec: the machine that is to compute it.
    """

    def __init__(self, context: Any, spec: NpuSpec) -> None:
        self.context, self.spec = context, spec
        self.root = context.matched_expr

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """The calls in the match, operands before users: the root is the last."""
        bindings = self.context.matched_bindings
        ordered: list[Any] = []
        seen: set[Any] = set()

        def visit(expr: Any) -> None:
            value = bindings.get(expr) if isinstance(expr, relax.Var) else expr
            if value is None or value in seen:
                return
            if isinstance(value, relax.Call):
                seen.add(value)
                for operand in value.args:
                    if isinstance(operand, relax.Var):
                        visit(operand)
                ordered.append(value)
            elif isinstance(value, relax.TupleGetItem):
                visit(value.tuple_value)

        visit(self.root)
        return tuple(ordered)

    @cached_property
    def operands(self) -> tuple[Any, ...]:
        """The tensors that the match reads from outside, each once, in order of use."""
        found: list[Any] = []
        for call in self.calls:
            for operand in tensor_operands(call):
                if not self.is_inside(operand) and not any(operand.same_as(other) for other in found):
                    found.append(operand)
        return tuple(found)

    @cached_property
    def is_quantized_chain(self) -> bool:
        """Whether the match ends in a quantize that follows something else."""
        return len(self.calls) > 1 and relax_name(self.root) == "relax.quantize"

    def is_inside(self, expr: Any) -> bool:
        """Whether ``expr`` is a variable that is bound inside the match."""
        return isinstance(expr, relax.Var) and expr in self.context.matched_bindings

    def labelled(self, label: str) -> Any:
        """The expression that the pattern's annotation ``label`` matched; None if that part was not matched."""
        return self.context.annotated_expr.get(label)
