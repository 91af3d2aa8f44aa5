"""Memory that planning and running ResNet-18 allocate, in a process of its own; prints JSON. ``run.py`` starts it.

Counted by tracemalloc, to which NumPy reports its arrays: what is resident depends on what was freed before.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import npu_kit
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.zoo import networks

MIB = 1 << 20


def peak_bytes(function: Callable[[], Any]) -> int:
    """The most that ``function`` has allocated at one time."""
    tracemalloc.start()
    function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def tensor_bytes(plan: Plan) -> int:
    """Bytes of all tensors of a region: arguments, constants, intermediates, results."""
    nodes = (node for node in plan.graph.nodes if node.is_kernel or node.kind in ("input", "const"))
    return sum(kind.nbytes for node in nodes for kind in node.outputs)


def main() -> None:
    compiled = npu_kit.compile(networks.resnet18_model(), bind_constants=True)
    graph, plan = compiled.graphs[0], compiled.plans[0]
    image = np.zeros((1, 3, 224, 224), np.float32)

    def run() -> None:
        for _ in range(2):
            compiled.run(image)

    tensors = sum(map(tensor_bytes, compiled.plans))
    planning, running = peak_bytes(lambda: make_plan(graph, plan.spec)), peak_bytes(run)
    print(
        json.dumps(
            {
                "planning MiB": round(planning / MIB, 1),
                "running MiB": round(running / MIB, 1),
                "tensors MiB": round(tensors / MIB, 1),
                "running per tensors": round(running / tensors, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
