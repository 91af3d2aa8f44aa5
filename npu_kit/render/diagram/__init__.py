"""Pictures of graphs: what they show, as data; leaving detail out; DOT text; the SVG that Graphviz makes of it."""

from npu_kit.render.diagram.edit import bundle_constants, collapse, hide_constants, outline
from npu_kit.render.diagram.model import Arrow, Box, Diagram, Group, verify_diagram

__all__ = [
    "Arrow",
    "Box",
    "Diagram",
    "Group",
    "bundle_constants",
    "collapse",
    "hide_constants",
    "outline",
    "verify_diagram",
]
