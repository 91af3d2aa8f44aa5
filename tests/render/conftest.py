"""Plans, events and graphs that several renderer tests draw."""

from __future__ import annotations

import pytest
from graphs import GraphBuilder, conv_relu_pool, matmul_chain

from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.forecast import forecast
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.trace.events import Events


@pytest.fixture(scope="session")
def spec() -> NpuSpec:
    """The machine of the lessons."""
    return load_spec()


@pytest.fixture(scope="session")
def conv_plan(spec: NpuSpec) -> Plan:
    """conv2d + bias + relu, then a pool: halos, ragged tiles, an intermediate in L2."""
    return make_plan(conv_relu_pool(), spec)


@pytest.fixture(scope="session")
def matmul_plan(spec: NpuSpec) -> Plan:
    """matmul + bias + relu: panels, several chunks, ragged in M, N and K."""
    return make_plan(matmul_chain(), spec)


@pytest.fixture(scope="session")
def plans(spec: NpuSpec, conv_plan: Plan, matmul_plan: Plan) -> dict[str, Plan]:
    """One plan per family of operations."""
    b = GraphBuilder()
    b.op("softmax", b.op("add", b.input((3, 70, 90)), b.input((70, 1))))
    return {"conv": conv_plan, "matmul": matmul_plan, "softmax": make_plan(b.graph(), spec)}


@pytest.fixture(scope="session")
def events(conv_plan: Plan) -> Events:
    """The forecast of ``conv_plan``."""
    return forecast(conv_plan)
