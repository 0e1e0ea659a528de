"""A tiny data set as Mulan has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LABELS = ("red", "dark blue", "Anna's")


def write_mulan(folder: Path, name: str = "tiny", rows: int = 40) -> None:
    """NAME-train.arff, NAME-test.arff and NAME.xml; a tenth of the rows has no label."""
    names = "".join(f'<label name="{label}"></label>\n' for label in LABELS)
    xml = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://x/labels">\n{names}</labels>'
    (folder / f"{name}.xml").write_text(xml, encoding="utf-8")
    draw = np.random.default_rng(0)
    for part in ("train", "test"):
        lines = ["@relation tiny", "@attribute a numeric", "@attribute b numeric"]
        lines += ["@attribute kind {up,down}"]
        lines += ["@attribute red {0,1}", "@attribute 'dark blue' {0,1}"]
        lines += ["@attribute 'Anna\\'s' {0,1}", "", "@data"]
        for i in range(rows):
            y = [0, 0, 0] if i % 10 == 9 else [1, i % 2, (i // 2) % 2]
            a, b = y[1] + 0.1 * draw.normal(), y[2] + 0.1 * draw.normal()
            lines.append(f"{a:.4f},{b:.4f},{'up' if y[0] else 'down'},{y[0]},{y[1]},{y[2]}")
        (folder / f"{name}-{part}.arff").write_text("\n".join(lines) + "\n", encoding="utf-8")
