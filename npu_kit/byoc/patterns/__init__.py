"""What the NPU takes: the pattern table, the checks that may refuse a match, and the recorder of what they said."""

from npu_kit.byoc.patterns.checks import Check, check_match
from npu_kit.byoc.patterns.match import Match
from npu_kit.byoc.patterns.refusals import accept, collect_refusals
from npu_kit.byoc.patterns.table import PatternInfo, pattern_infos, pattern_rows, pattern_table, register

__all__ = [
    "Check",
    "Match",
    "PatternInfo",
    "accept",
    "check_match",
    "collect_refusals",
    "pattern_infos",
    "pattern_rows",
    "pattern_table",
    "register",
]
