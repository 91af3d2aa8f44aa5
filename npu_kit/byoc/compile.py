"""Compiles a Relax module for the NPU and the host: partition, codegen, TVM's own build for the rest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm import relax

from npu_kit.byoc import BACKEND
from npu_kit.byoc.codegen import registration
from npu_kit.byoc.codegen.generate import GeneratedRegion, generate, write_options
from npu_kit.byoc.model.guard import verify_export, verify_host, verify_recursion
from npu_kit.byoc.model.normalize import first_line
from npu_kit.byoc.model.walk import model_functions
from npu_kit.byoc.partition import partition
from npu_kit.byoc.report import Partition
from npu_kit.byoc.run.artefact import export
from npu_kit.byoc.run.callback import call_through
from npu_kit.byoc.run.host import build_executable
from npu_kit.byoc.run.model import RunnableModel, parameters_of
from npu_kit.byoc.run.region_text import Settings
from npu_kit.byoc.run.store import Keeper, kept_by
from npu_kit.doctor import require_tvm
from npu_kit.errors import NpuKitError, PartitionError, UnsupportedError
from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Plan


class Compiled(RunnableModel):
    """A compiled model, and everything that was decided on the way. Made by ``compile``."""

    def __init__(
        self,
        executable: Any,
        partition: Partition,
        regions: Sequence[GeneratedRegion],
        settings: Settings,
        keeper: Keeper,
    ) -> None:
        entry, function = _entry_of(partition.module)
        # executable.mod: VirtualMachine(executable) links an empty C module first and so needs a C compiler.
        super().__init__(executable.mod, str(entry.name_hint), parameters_of(function), keeper)
        self._executable, self._partition, self._settings = executable, partition, settings
        self._graphs = tuple(region.graph for region in regions)
        self._plans = tuple(region.plan for region in regions)

    @property
    def executable(self) -> Any:
        """TVM's executable, for one's own machine: ``relax.VirtualMachine(c.executable.mod, tvm.cpu())``."""
        return self._executable

    @property
    def partition(self) -> Partition:
        """What went to the NPU, and why."""
        return self._partition

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The JSON graph of each region, in the order of ``partition.regions``."""
        return self._graphs

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each region, in the order of ``partition.regions``."""
        return self._plans

    @property
    def mode(self) -> str:
        """How regions run: "fast" or "step"."""
        return self._settings.mode

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write a shared library and its manifest, for ``npu_kit.load``.

        Raises:
            ToolError: there is no C compiler, or the files cannot be written.
            UnsupportedError: the model has a constant that TVM could not load again.
        """
        verify_export(self._partition.module)
        return export(self, self._executable, path)

    def __repr__(self) -> str:
        return f"Compiled({self._partition.report.summary} mode={self.mode!r})"


def _entry_of(module: Any) -> tuple[Any, Any]:
    """The function that ``run`` calls: ``main``, or the only one; PartitionError if there is no telling."""
    functions = model_functions(module)
    names = [str(var.name_hint) for var, _ in functions]
    if len(functions) == 1 or "main" in names:
        return functions[0]  # main comes first
    if not names:
        why, hint = "it has none that can be called from outside", "giving the one to run a global_symbol."
        raise PartitionError("the model has no function main", why, hint)
    hint = f"tvm.IRModule({{'main': mod[{names[0]!r}]}}), with the name of the one to run."
    raise PartitionError("the model has no function main", f"it has {', '.join(names)}", hint)


def compile(
    mod: Any,
    spec: str | NpuSpec = "example",
    patterns: Any = None,
    merge: Any = "safe",
    bind_constants: bool = False,
    *,
    tile: int | tuple[int, int] | None = None,
    power_mode: str | None = None,
    mode: str = "fast",
) -> Compiled:
    """Compile a Relax module; needs no C compiler.

    Args:
        mod: the module; its entry is ``main``.
        spec, patterns, merge, bind_constants: as for ``partition``.
        tile: side of the output tile, or (rows, columns); None for the spec's.
        power_mode: one of the spec's; None for its default.
        mode: "fast", or "step", which runs tile by tile in real buffers of the tiers' sizes. Same bits, same counters.

    Returns:
        the compiled model: ``.run(*arrays)``.

    Raises:
        PartitionError, UnsupportedError, PlanError, SpecError: by stage.
        ExecutionError: there is no such mode.
        ToolError: TVM is missing or does not fit.
    """
    require_tvm()
    registration.require_registered()
    machine = load_spec(spec)
    # The checks ask whether a match fits: they have to ask the machine that will run it.
    settings = Settings(machine if tile is None else machine.replace(tile=tile), power_mode, mode)
    parts = partition(mod, settings.spec, patterns=patterns, merge=merge, bind_constants=bind_constants)
    verify_host(parts.module)
    verify_recursion(parts.module)
    keeper = Keeper()
    with kept_by(keeper):
        # Here errors arrive as they are raised; RunCodegen then finds the same content planned.
        regions = [generate(region.function, settings) for region in parts.regions]
        run_codegen = relax.transform.RunCodegen({BACKEND: write_options(settings)})
        module = call_through(run_codegen, parts.module)
    if module.attrs and "const_name_to_constant" in module.attrs:
        # The regions' loader holds the constants; TVM would store them a second time.
        module = module.without_attr("const_name_to_constant")
    return Compiled(_host_executable(module), parts, regions, settings, keeper)


def _host_executable(module: Any) -> Any:
    """TVM's build of what stays on the host; it refuses in many ways, and names no operation of the model."""
    try:
        return build_executable(module)
    except NpuKitError:
        raise
    except Exception as error:
        raise UnsupportedError(
            "TVM cannot build what stays on the host",
            f"it says: {type(error).__name__}: {first_line(error):.300}",
            "npu_kit.partition(mod).report: what stays there, and why",
        ) from error
