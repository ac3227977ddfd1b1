"""Draws a terminal as SVG from a command's output, colours included.

    sealbus demo --color always | python3 docs/picture.py 'make demo' > docs/demo.svg
"""

import html
import re
import sys

COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
FAINT = "#8b949e"
CELL, LINE, SIZE, PAD, BAR = 8.4, 19, 14, 16, 36


def spans(line: str) -> list[tuple[str, str | None, bool]]:
    """The line in pieces of one colour and weight."""
    pieces: list[tuple[str, str | None, bool]] = []
    colour: str | None = None
    bold = False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            for code in (int(code or 0) for code in part[2:-1].split(";")):
                if code == 0:
                    colour, bold = None, False
                elif code == 1:
                    bold = True
                elif code == 2:
                    colour = FAINT
                elif code == 22:
                    bold = False
                elif code == 39:
                    colour = None
                elif code in COLOURS:
                    colour = COLOURS[code]
        elif part:
            pieces.append((part, colour, bold))
    return pieces


def draw(command: str, lines: list[str]) -> str:
    widest = max([len(command) + 2, *(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)])
    width = widest * CELL + 2 * PAD
    height = (len(lines) + 1) * LINE + BAR + PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="{html.escape(command)} in a terminal">',
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{20 + 20 * n}" cy="18" r="6" fill="{c}"/>' for n, c in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))),
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="{SIZE}" fill="#e6edf3" xml:space="preserve">',
        f'<text x="{PAD}" y="{BAR + SIZE}"><tspan fill="#7ee787">$</tspan> {html.escape(command)}</text>',
    ]
    for number, line in enumerate(lines, 1):
        x = float(PAD)
        for text, colour, bold in spans(line):
            style = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if bold else "")
            length = len(text) * CELL
            if text.strip():
                out.append(
                    f'<text x="{x:.1f}" y="{BAR + SIZE + number * LINE}" textLength="{length:.1f}"{style}>'
                    f"{html.escape(text)}</text>"
                )
            x += length
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


if __name__ == "__main__":
    print(draw(sys.argv[1], sys.stdin.read().rstrip("\n").split("\n")), end="")
