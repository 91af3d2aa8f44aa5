"""Pictures and tables of the kit's data: pure functions from typed values to SVG, DOT or text.

>>> from npu_kit import render
>>> render.flow("partition").alt
'The flow: patterns, partition, codegen, runtime; you are at partition'
"""

from npu_kit.render.diagram.dot_text import to_dot
from npu_kit.render.diagram.edit import bundle_constants, collapse, hide_constants, outline
from npu_kit.render.diagram.graph import graph, graph_diagram
from npu_kit.render.diagram.model import Arrow, Box, Diagram, Group
from npu_kit.render.diagram.picture import draw
from npu_kit.render.dot import find_backend, render_dot
from npu_kit.render.flow_picture import flow
from npu_kit.render.image_picture import images
from npu_kit.render.listing.program import Program, program
from npu_kit.render.memory_picture import memory_map
from npu_kit.render.occupancy_picture import occupancy
from npu_kit.render.picture import Picture
from npu_kit.render.roofline_picture import roofline
from npu_kit.render.summary import summary_table
from npu_kit.render.tables import Table, events_table, metrics_table, reasons_table, steps_table
from npu_kit.render.tile.picture import tiles
from npu_kit.render.timeline_picture import timeline
from npu_kit.render.traffic_picture import traffic

__all__ = [
    "Arrow",
    "Box",
    "Diagram",
    "Group",
    "Picture",
    "Program",
    "Table",
    "bundle_constants",
    "collapse",
    "draw",
    "events_table",
    "find_backend",
    "flow",
    "graph",
    "graph_diagram",
    "hide_constants",
    "images",
    "memory_map",
    "metrics_table",
    "occupancy",
    "outline",
    "program",
    "reasons_table",
    "render_dot",
    "roofline",
    "steps_table",
    "summary_table",
    "tiles",
    "timeline",
    "to_dot",
    "traffic",
]
