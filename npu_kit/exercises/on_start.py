"""Exercises of lesson 00: the whole flow once."""

from __future__ import annotations

from functools import cache
from typing import Any

from npu_kit.byoc.compile import compile as compile_model
from npu_kit.byoc.partition import partition
from npu_kit.byoc.report import Partition, Report
from npu_kit.data import load_digits_data
from npu_kit.exercises.exercise import function_exercise, value_exercise
from npu_kit.graph.ops import OPS
from npu_kit.zoo import build

_BATCH = 4
_REPORTED = ("sin_between", "attention", "float64_matmul", "matmul_relu")


@cache
def _digits() -> Partition:
    return partition(build("digits", batch=_BATCH), bind_constants=True)


def _free_operator() -> str:
    reshapes = [definition.relax_name for definition in OPS.values() if definition.family == "reshape"]
    (call,) = (call for call in _digits().report if call.op in reshapes)
    return call.op


def _image_bytes() -> int:
    return int(load_digits_data().test_images[:_BATCH].nbytes)


def _composites() -> int:
    return sum(len(region.composites) for region in _digits().regions)


def _digits_change() -> bool:
    images = load_digits_data().test_images[:_BATCH]
    model = build("digits", batch=_BATCH)
    full, small = (compile_model(model, bind_constants=True, tile=tile).run(images) for tile in (None, 8))
    return bool((full.argmax(axis=1) != small.argmax(axis=1)).any())


def _host_reasons(report: Report) -> dict[str, str]:
    return {call.name: call.reason for call in report.on_host}


def _reports() -> list[tuple[Any]]:
    return [(partition(build(name)).report,) for name in _REPORTED]


EXERCISES = (
    value_exercise("start.free_operator", _free_operator, hint="its result holds the numbers of its input"),
    value_exercise("start.image_bytes", _image_bytes, hint="a float32 takes 4 bytes"),
    value_exercise("start.composites", _composites, hint="count the dashed frames"),
    value_exercise("start.digits_change", _digits_change, hint="tiles change how a sum is cut, not what is summed"),
    function_exercise(
        "start.host_reasons",
        _host_reasons,
        _reports,
        hint="take the calls whose where is 'host'",
        labels=[f"report of {name}" for name in _REPORTED],
    ),
)
