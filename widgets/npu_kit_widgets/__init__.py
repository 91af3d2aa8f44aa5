"""The interactive views of npu_kit, one per file; what runs something is a callable that the notebook passes in."""

from npu_kit_widgets.graph_explorer import GraphExplorer
from npu_kit_widgets.partition_explorer import PartitionExplorer
from npu_kit_widgets.pattern_explorer import PatternExplorer
from npu_kit_widgets.svg_view import SvgView
from npu_kit_widgets.tile_explorer import TileExplorer
from npu_kit_widgets.view import View

__all__ = ["GraphExplorer", "PartitionExplorer", "PatternExplorer", "SvgView", "TileExplorer", "View"]
