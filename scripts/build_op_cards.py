"""Write docs/operations.md: a card for each operation of the table, and what has none.

python scripts/build_op_cards.py            write the page
python scripts/build_op_cards.py --check    only say whether it is out of date; exit code 1 if it is
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tvm import ir

from npu_kit.byoc.model.rewrite import REWRITTEN
from npu_kit.graph.ops import OPS
from npu_kit.render.op_cards import markdown

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operations.md"
# TVM's own machinery: memory, calls, gradients, shapes as values, several devices. No layer of a network is one.
MACHINERY = re.compile(
    r"relax\.(builtin|ccl|dist\w*|grad|inspect|memory|vm)\.|relax\.(call|invoke|make|hint|assert|null|to|wrap)_"
    r"|relax\.(print|shape_of|shape_to_tensor|tensor_to_shape|size|op_attrs)$"
)


def operators_without_card() -> tuple[str, ...]:
    """The Relax operators of this TVM that a model may hold and the kit does not compute."""
    known = {op.relax_name for op in OPS.values()} | set(REWRITTEN)
    names = {str(name) for name in ir.Op.list_op_names()} - known
    return tuple(sorted(name for name in names if name.startswith("relax.") and not MACHINERY.match(name)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/operations.md.")
    parser.add_argument("--check", action="store_true", help="only say whether it is out of date")
    text = markdown(REWRITTEN, operators_without_card())
    if parser.parse_args().check:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"docs/{PAGE.name} is {'current' if is_current else 'out of date: python scripts/build_op_cards.py'}")
        return 0 if is_current else 1
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    print(f"docs/{PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
