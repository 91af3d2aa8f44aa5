"""Codegen: region functions to one runtime module, which runs them on the kit and carries their constants.

The module is a library of packed functions (``library``). Each hands its region's content key, text and tensors to the
kit (``run.regions``); the text travels inside, so the library can be exported, and loaded where the kit is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from numpy.typing import NDArray

from npu_kit.byoc.codegen.library import RegionCode, build_library
from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.run import store
from npu_kit.byoc.run.region_text import FORMAT, Package, Settings, digest_constants, package_from_json
from npu_kit.byoc.run.shared import share
from npu_kit.byoc.run.store import PlannedRegion
from npu_kit.doctor import require_tvm
from npu_kit.errors import GraphError, PartitionError
from npu_kit.graph.ir import Graph
from npu_kit.graph.serialize import from_json
from npu_kit.hw.presets import load_spec, spec_from_json, spec_to_json
from npu_kit.plan.ir import Plan
from npu_kit.runtime.execute import MODES

Array = NDArray[Any]

_OPTIONS = {
    "spec": "the name of a preset, the path of a spec file, or a spec's JSON text",
    "power_mode": "the name of one of the spec's power modes",
    "tile": "the side of the output tile, or [rows, columns]",
    "mode": " or ".join(map(repr, MODES)),
}


@dataclass(frozen=True)
class GeneratedRegion:
    """One region after codegen."""

    planned: PlannedRegion
    constants: Mapping[str, Array]  # by name, in the order of the graph's const nodes
    code: RegionCode

    @property
    def graph(self) -> Graph:
        """Its JSON graph."""
        return self.planned.package.graph

    @property
    def plan(self) -> Plan:
        """How it runs."""
        return self.planned.plan


def generate(function: Any, settings: Settings) -> GeneratedRegion:
    """Lower and plan one region function.

    Raises:
        UnsupportedError: the region holds what the NPU cannot compute.
        PlanError: the region does not fit the machine.
    """
    symbol = str(function.attrs["global_symbol"])
    graph, values = lower(function, symbol)
    constants = {graph.nodes[node].name: values[graph.nodes[node].name] for node in graph.constants}
    package = Package(graph, settings, digest_constants(constants.values()))
    planned, text = store.add(package)
    count = len(function.params) + len(graph.heads)  # a tuple parameter is passed as one argument, outputs flattened
    return GeneratedRegion(planned, constants, RegionCode(symbol, planned.key, text, count))


def codegen(functions: Iterable[Any], options: Mapping[str, Any], constant_names: Mapping[Any, str]) -> list[Any]:
    """``relax.ext.example_npu``: what RunCodegen calls with all regions of a module.

    Args:
        functions: the region functions.
        options: ``RunCodegen({"example_npu": {...}})``: spec, power_mode, tile, mode, all optional.
        constant_names: TVM's names for the constants, which derive from structure; the kit names them by content.

    Returns:
        one runtime module that holds the code of all regions and their constants.
    """
    require_tvm()
    settings = read_options(options)
    generated = [generate(function, settings) for function in functions]
    library = build_library(region.code for region in generated)
    arrays = {name: value for region in generated for name, value in region.constants.items()}
    if not arrays:
        return [library]
    tensors, kept, owner = share(arrays)
    for region in generated:
        if region.constants:
            store.take(region.planned.key, tuple(kept[name] for name in region.constants), owner)
    # One loader for all regions: with one each, TVM loses constants when it exports.
    names = {region.graph.symbol: list(region.constants) for region in generated}
    loader = tvm.get_global_func("ffi.Module.create.const_loader")(tensors, names)
    loader.import_module(library)
    return [loader]


def create_runtime(symbol: str, text: str, constant_names: Iterable[str]) -> Any:
    """``runtime.ExampleNPUJSONRuntimeCreate``: a runtime module for one region.

    Args:
        symbol: the function that the module shall have.
        text: a package, or only a JSON graph, which then runs on the preset "example".
        constant_names: the graph's constants. Their values come from the ``const_loader`` that imports this module.

    Raises:
        GraphError: the text breaks a rule, or the names are not those of the graph.
    """
    package = _read_text(text)
    names = [package.graph.nodes[node].name for node in package.graph.constants]
    if [str(name) for name in constant_names] != names:
        given = ", ".join(map(str, constant_names)) or "none"
        raise GraphError(f"constants of {symbol}", f"the graph has {', '.join(names) or 'none'} and {given} were given")
    planned, text = store.add(package)
    count = len(package.graph.inputs) + len(package.graph.heads)
    return build_library([RegionCode(symbol, planned.key, text, count)])


def read_options(options: Mapping[str, Any]) -> Settings:
    """Settings from the options of RunCodegen; PartitionError names an option that does not exist or does not fit."""
    for name in options:
        if str(name) not in _OPTIONS:
            known = "; ".join(f"{option}: {meaning}" for option, meaning in _OPTIONS.items())
            raise PartitionError(f"no option {str(name)!r} of example_npu", f"it has {known}")
    for name in ("spec", "power_mode", "mode"):
        if name in options and not isinstance(options[name], str):
            raise PartitionError(f"option {name} of example_npu", f"it is {options[name]!r}, not {_OPTIONS[name]}")
    spec = str(options.get("spec", "example"))
    machine = spec_from_json(spec, "option spec") if spec.lstrip().startswith("{") else load_spec(spec)
    return Settings(
        spec=machine.replace(tile=_read_tile(options["tile"])) if "tile" in options else machine,
        power_mode=str(options["power_mode"]) if "power_mode" in options else None,
        mode=str(options.get("mode", MODES[0])),
    )


def write_options(settings: Settings) -> dict[str, Any]:
    """The options of RunCodegen from which ``read_options`` makes these settings; the tile is in the spec."""
    options = {
        "spec": spec_to_json(settings.spec),
        "power_mode": settings.power_mode,
        "mode": settings.mode,
    }
    return {name: value for name, value in options.items() if value is not None}


def _read_tile(value: Any) -> int | tuple[int, int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    sides = [] if isinstance(value, str | bool) or not hasattr(value, "__iter__") else list(value)
    if len(sides) == 2 and all(isinstance(side, int) for side in sides):
        return int(sides[0]), int(sides[1])
    raise PartitionError("option tile of example_npu", f"it is {value!r}, not {_OPTIONS['tile']}")


def _read_text(text: str) -> Package:
    if f'"{FORMAT}"' in text[:100]:
        return package_from_json(text)
    return Package(from_json(text), Settings(load_spec("example")), constants_sha256="")
