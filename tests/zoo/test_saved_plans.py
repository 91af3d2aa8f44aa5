"""Plans of every sample model on every machine: saved, loaded and saved again they are the same text."""

from __future__ import annotations

import pytest

from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.partition import partition
from npu_kit.errors import PlanError
from npu_kit.hw.presets import load_spec, preset_names
from npu_kit.plan.planner import make_plan
from npu_kit.plan.serialize import plan_from_json, plan_to_json
from npu_kit.render import program
from npu_kit.zoo import MODELS, build


@pytest.mark.parametrize("name", MODELS)
def test_save_load_save_is_the_same_text(name: str) -> None:
    planned = 0
    for machine in preset_names():
        spec = load_spec(machine)
        for region in partition(build(name), spec, bind_constants=True).regions:
            graph, _ = lower(region.function, str(region.function.attrs["global_symbol"]))
            try:
                plan = make_plan(graph, spec)
            except PlanError:
                continue  # this machine is too small for it
            text = plan_to_json(plan)
            loaded = plan_from_json(text)
            assert loaded == plan
            assert plan_to_json(loaded) == text
            assert not program(plan).diff(loaded)
            planned += 1
    assert planned or name == "float64_matmul"
