"""The views import where TVM is missing, and the one that needs no model works there."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["tvm"] = None  # from here on, importing it fails
import npu_kit_widgets
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.plan.forecast import forecast
from npu_kit.plan.planner import make_plan
a = TensorType((40, 40), "float32")
nodes = (Node("input", "a", (a,)), Node("kernel", "relu", (a,), (Entry(0),), {}, "example_npu.relu#0"))
view = npu_kit_widgets.TileExplorer(Graph("relu", nodes, (0,), (Entry(1),)), "example", make_plan, forecast)
print(view.error, bool(view.plan))
"""


def test_views_work_without_tvm():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "None True", result.stderr
