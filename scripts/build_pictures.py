"""Draw the pictures of the documentation with the kit's own renderers."""

from __future__ import annotations

from pathlib import Path

from npu_kit import render

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURES = {"flow.svg": render.flow}


def main() -> None:
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw() + "\n", encoding="utf-8", newline="\n")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
