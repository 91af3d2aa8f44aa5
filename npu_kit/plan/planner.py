"""The planner: graph and machine in, plan out. Arithmetic only: nothing is allocated and nothing runs.

Greedy, in six moves: group nodes into steps; keep the tensors between steps in L2 where they fit; choose each step's
loop order and buffering by its cycles; copy to L2 what a step would otherwise fetch from DRAM many times; where
tensors between steps still go through DRAM, try to carry a few rows at a time through all of them; and move tensors out
of L2 for others that save more there.
"""

from __future__ import annotations

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.choose import Chooser
from npu_kit.plan.cost import DATAFLOWS, CostModel
from npu_kit.plan.draft import Draft, draft_plan, with_spills
from npu_kit.plan.ir import Plan
from npu_kit.plan.no_room import NoRoomError, with_ways_out
from npu_kit.plan.striping import in_stripes
from npu_kit.plan.verify import verify_plan


def make_plan(
    graph: Graph,
    spec: NpuSpec,
    *,
    tile: int | tuple[int, int] | None = None,
    dataflow: str | None = None,
    double_buffer: bool = True,
    chains: bool = True,
    power_mode: str | None = None,
) -> Plan:
    """Decide tiles, tiers, engines and order for one region.

    Args:
        graph: a verified graph.
        spec: the machine.
        tile: rows and columns of the output tile, instead of the spec's.
        dataflow: what stays on the array in every contraction, "output_stationary", "weight_stationary" or
            "input_stationary"; None chooses for each by cost.
        double_buffer: whether slots may have a second copy, which the dma engine fills while an engine reads the first.
        chains: whether steps whose tensors do not fit L2 may be cut into stripes, which then do. The plan's graph is
            then the graph in stripes.
        power_mode: a name from the spec; None for its default.

    Raises:
        PlanError: a tensor larger than DRAM, a tile that fits no memory, partial sums that do not fit L1; the message
            has the numbers.
        SpecError: a tile that the machine cannot hold, an unknown power mode.
    """
    if tile is not None:
        spec = spec.replace(tile=tile)
    mode = spec.power_mode(power_mode).name
    if dataflow not in (None, *DATAFLOWS):
        raise PlanError(f"no dataflow {dataflow!r}", f"there are {', '.join(DATAFLOWS)}")

    def chooser_for(machine: NpuSpec, flow: str | None) -> Chooser:
        return Chooser(machine, CostModel(machine, mode), dataflow=flow, double_buffer=double_buffer)

    def trial(machine: NpuSpec, flow: str | None) -> Draft:
        return draft_plan(graph, chooser_for(machine, flow))

    chooser = chooser_for(spec, dataflow)
    try:
        draft = draft_plan(graph, chooser)
    except NoRoomError as error:
        raise with_ways_out(error, spec, dataflow, trial) from None
    if chains:
        draft = in_stripes(draft, chooser)
    draft = with_spills(draft, chooser)
    plan = Plan(draft.graph, spec, mode, draft.steps, draft.buffers, draft.reasons)
    verify_plan(plan)
    return plan
