"""What the kit knows about one operation, as a type: ``OpDef``. The table of them all is ``graph.ops``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.ir import AttrValue, TensorType
from npu_kit.graph.shapes import FLOATS, INTEGERS, Attrs, Types

FAMILIES = ("contraction", "window", "elementwise", "reduction", "rows", "movement", "reshape")

ANY = (*FLOATS, *INTEGERS)

Dropped = Callable[[Any, Mapping[str, AttrValue]], str]  # (value, full attributes) -> what is wrong, or ""


@dataclass(frozen=True)
class OpDef:
    """One operation.

    Call ``infer`` and ``macs``; ``rule`` and ``count`` are the functions behind them.
    """

    name: str
    relax_name: str
    family: str  # one of FAMILIES: how it is cut into tiles
    engine: str  # one of hw.spec.ENGINE_NAMES; "vector" instead for a convolution that filters each channel alone
    summary: str  # a few words
    formula: str  # what it computes: out of the names of the inputs and attributes
    inputs: Mapping[str, tuple[str, ...]]  # name of each input, in order, and the dtypes it may have
    rule: Callable[[str, Types, Attrs, str | None], TensorType]
    attributes: Mapping[str, AttrDef] = field(default_factory=dict)
    # Attributes of the Relax call that a graph does not carry, each with a check that dropping it changes nothing.
    dropped: Mapping[str, Dropped] = field(default_factory=dict)
    arguments: Mapping[str, int] = field(default_factory=dict)  # attributes that Relax has among its arguments
    has_more_arguments: bool = False  # Relax has still more, of which some may be left out
    renamed: Mapping[str, str] = field(default_factory=dict)  # attributes that Relax calls otherwise
    count: Callable[[Types, Attrs, TensorType], int] | None = None
    # Whether the inputs after the first hold one value for each index of attribute ``axis`` (or one for all).
    parameters_on_axis: bool = False
    is_variadic: bool = False  # takes one or more tensors like its only input, which Relax has in one tuple
    other_engine: str = ""  # that could compute it too: nothing goes there, but ``plan.alternatives`` prices it
    differs: str = ""  # where TVM's LLVM code gives something else on purpose, and what
    limits: str = ""  # what is refused besides dtypes and attributes that the table shows

    @property
    def arity(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @property
    def is_unary_elementwise(self) -> bool:
        """Whether it makes each element of the output from one element of its only input."""
        return self.family == "elementwise" and self.arity == 1

    def infer(
        self, input_types: Sequence[TensorType], attrs: Mapping[str, AttrValue], out_dtype: str | None = None
    ) -> TensorType:
        """The type of the output.

        Args:
            input_types: one type per input.
            attrs: all attributes, in the form ``normalise_attrs`` gives.
            out_dtype: the dtype asked for; None for the inputs' own (quantize and dequantize need one).

        Raises:
            GraphError: the number of inputs, or shapes that do not fit together.
            UnsupportedError: a dtype or a combination that the NPU does not compute.
        """
        inputs = list(self.inputs.items())
        if self.is_variadic and input_types:
            inputs *= len(input_types)
        if len(input_types) != len(inputs):
            why = f"it takes {self.arity} inputs ({', '.join(self.inputs)}) and got {len(input_types)}"
            raise GraphError(self.name, why)
        for (name, dtypes), given in zip(inputs, input_types, strict=True):
            if given.dtype not in dtypes:
                raise UnsupportedError(
                    f"{self.name} of {' and '.join(map(str, input_types))}",
                    f"{name} needs one of {', '.join(dtypes)} and is {given.dtype}",
                    "a cast, or leave the operation on the host",
                )
        return self.rule(self.name, input_types, attrs, out_dtype)

    def macs(self, input_types: Sequence[TensorType], attrs: Mapping[str, AttrValue], output: TensorType) -> int:
        """Multiply-accumulates of the whole operation; 0 for everything but a contraction."""
        return self.count(input_types, attrs, output) if self.count else 0


def equal_layout(key: str) -> Dropped:
    """The layout of the output must be that of the data, attribute ``key``."""

    def check(value: Any, full: Mapping[str, AttrValue]) -> str:
        return "" if value in (None, "", full[key]) else f"is {value!r} and must be {key}'s {full[key]!r}"

    return check


def is_false(value: Any, full: Mapping[str, AttrValue]) -> str:
    """Only False."""
    return "" if not value else "is True, and the NPU normalises with running statistics only"


def anything(value: Any, full: Mapping[str, AttrValue]) -> str:
    """Any value: the types say it, or it changes nothing."""
    return ""
