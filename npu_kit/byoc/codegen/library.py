"""Writes the functions of regions in TVM's packed form and compiles them to one LLVM library.

A packed function takes ``(self_handle, args, num_args, result)``. TVM generates no checks for a function that is
already in this form, so each one counts its arguments first: reading past the end would be undefined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx

from npu_kit.byoc.run.regions import HAS, LOAD, RUN, RUN_LOADED, SET_CONSTANTS, WRONG_COUNT

# TVM copies a string at every call, 86 us for 1 MB: a longer text is handed over once.
MAX_INLINE_BYTES = 64 * 1024


@dataclass(frozen=True)
class RegionCode:
    """What the code of one region knows."""

    symbol: str
    key: str
    text: str
    argument_count: int  # parameters of the region function, then its outputs


def build_library(regions: Iterable[RegionCode]) -> Any:
    """One LLVM module: ``symbol`` of each region, which runs it, and ``__init_<symbol>`` for its constants."""
    functions = {}
    for region in regions:
        init = f"__init_{region.symbol}"
        functions[region.symbol] = _packed_function(region.symbol, region.argument_count, _run(region))
        functions[init] = _packed_function(init, 1, _set_constants(region))
    return tvm.compile(ir.IRModule(functions), target=_TARGET).mod


def _run(region: RegionCode) -> Any:
    arguments = _arguments(region.argument_count)
    if len(region.text) <= MAX_INLINE_BYTES:
        return _call(RUN, region.key, region.text, *arguments)
    is_known = tirx.call_packed(HAS, region.key)
    load = _call(LOAD, region.key, region.text)
    return tirx.SeqStmt([tirx.IfThenElse(is_known == 0, load, None), _call(RUN_LOADED, region.key, *arguments)])


def _set_constants(region: RegionCode) -> Any:
    head = (_RESULT, _int(0), SET_CONSTANTS, region.key)
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.anylist_setitem_call_packed", *head, *_arguments(1)))


def _packed_function(symbol: str, argument_count: int, body: Any) -> Any:
    wrong = _call(WRONG_COUNT, symbol, argument_count, _COUNT)
    counted = tirx.IfThenElse(_int(argument_count) != _COUNT, wrong, body)
    parameters = [_SELF, _ARGUMENTS, _COUNT, _RESULT]
    function = tirx.PrimFunc(parameters, tirx.SeqStmt([counted, tirx.Return(_int(0))]), ret_type=ir.PrimType("int32"))
    return function.with_attr("global_symbol", f"__tvm_ffi_{symbol}").with_attr("calling_conv", _PACKED)


def _arguments(count: int) -> list[Any]:
    return [tirx.call_intrin("handle", "tirx.anylist_getitem", _ARGUMENTS, _int(i)) for i in range(count)]


def _call(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_packed(name, *arguments))


def _int(value: int) -> Any:
    return tirx.IntImm("int32", value)


_TARGET = {"kind": "llvm", "opt-level": 0}  # each function is one call: there is nothing to optimize
_PACKED = 1  # tvm's CallingConv::kCPackedFunc
_SELF, _ARGUMENTS, _RESULT = (tirx.Var(name, "handle") for name in ("self_handle", "args", "result"))
_COUNT = tirx.Var("num_args", "int32")
