"""A built model that takes and gives NumPy arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from npu_kit.byoc.model.calls import describe_type
from npu_kit.byoc.run.callback import call_through
from npu_kit.byoc.run.store import Keeper, kept_by
from npu_kit.errors import UnsupportedError
from npu_kit.runtime.inputs import Parameter, admit

Array = NDArray[Any]


class RunnableModel:
    """A model in a runtime module: ``run`` it with arrays.

    Args:
        module: TVM's runtime module of the built model.
        entry: the function to call, "main" as a rule.
        parameters: what it takes, in order.
        keeper: keeps its regions; None for one of its own.
    """

    def __init__(
        self, module: Any, entry: str, parameters: tuple[Parameter, ...], keeper: Keeper | None = None
    ) -> None:
        self._module, self._entry, self._parameters = module, entry, parameters
        self._machines = threading.local()
        self._keeper = Keeper() if keeper is None else keeper

    @property
    def entry(self) -> str:
        """The function that ``run`` calls."""
        return self._entry

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Name, shape and dtype of each array that ``run`` takes."""
        return self._parameters

    def has_entry(self) -> bool:
        """Whether the module has the function that ``run`` calls."""
        try:
            with kept_by(self._keeper):
                call_through(lambda: self._machine()[self._entry])
        except AttributeError:
            return False
        return True

    def run(self, *arrays: Any) -> Any:
        """Compute the model.

        Args:
            arrays: one NumPy array per parameter. They are copied, never written.

        Returns:
            one array, or a tuple where the model returns one.

        Raises:
            InputError: an array does not fit; names the parameter, what is wanted and what was found.
            ExecutionError: an operation failed on the NPU; names the node. An error of another class, or
                KeyboardInterrupt, arrives as it was raised.
        """
        tensors = [tvm.runtime.tensor(array) for array in admit(arrays, self._parameters)]
        # Making the machine runs code of TVM too, which takes the constants of the regions.
        with kept_by(self._keeper):
            return _to_arrays(call_through(lambda: self._machine()[self._entry](*tensors)))

    def __repr__(self) -> str:
        takes = ", ".join([*map(str, self._parameters[:3]), *(["..."] if len(self._parameters) > 3 else [])])
        return f"{type(self).__name__}({self._entry} of {takes or 'nothing'})"

    def __copy__(self) -> RunnableModel:
        return self  # nothing about a built model changes

    def __deepcopy__(self, memo: dict[int, Any]) -> RunnableModel:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError(
            "a built model cannot be pickled",
            "it holds machine code in the memory of this process",
            "export(path) here and npu_kit.load(path, trust=True) there, or compiling there.",
        )

    def _machine(self) -> Any:
        """This thread's virtual machine: TVM crashes where threads share one."""
        if not hasattr(self._machines, "machine"):
            self._machines.machine = relax.VirtualMachine(self._module, tvm.cpu())
        return self._machines.machine


def parameters_of(function: Any) -> tuple[Parameter, ...]:
    """What a Relax function takes, for ``RunnableModel``.

    Raises:
        UnsupportedError: a parameter that is not a tensor of known rank and of a dtype that NumPy has.
    """
    return tuple(_parameter(var) for var in function.params)


def _parameter(var: Any) -> Parameter:
    type_ = var.ty
    if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
        raise UnsupportedError(
            f"parameter {var.name} of the model",
            f"it is {describe_type(type_)}, and the kit runs models that take arrays of known rank",
            "a main that takes tensors.",
        )
    dtype = str(type_.dtype)
    try:
        np.dtype(dtype)
    except TypeError:
        raise UnsupportedError(
            f"parameter {var.name} of the model", f"NumPy has no dtype {dtype}", "float32 or float16."
        ) from None
    extents = type_.shape.values
    return Parameter(str(var.name), tuple(int(e) if isinstance(e, tirx.IntImm) else str(e) for e in extents), dtype)


def _to_arrays(value: Any) -> Any:
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    if isinstance(value, tvm.ir.Array | tuple | list):
        return tuple(_to_arrays(item) for item in value)
    return value
