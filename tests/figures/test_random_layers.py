"""Figure 10: measured once, written down at once, gone on with after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from unarg_callback.figures import random_layers
from unarg_callback.figures.canvas import FigureError
from unarg_callback.figures.random_layers import draw, measure, measure_all, random_layer, read


def silent(line: str) -> None:
    assert "unargmaxable" in line


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.csv"
    measured: list[int] = []

    def counted(*arguments: int, bias: bool) -> random_layers.Measurement:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(arguments[1])
        return measure(*arguments, bias=bias)

    monkeypatch.setattr(random_layers, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        measure_all(path, 60, [6, 4, 2], 0, tell=silent)
    before = read(path)
    assert [m.features for m in before] == measured == [6, 4]
    monkeypatch.setattr(random_layers, "measure", measure)
    found = measure_all(path, 60, [6, 4, 2], 0, tell=silent)
    assert found[:2] == before
    assert read(path) == found
    # Another seed, or a bias, is another layer.
    assert len(measure_all(path, 60, [6], 1, bias=True, tell=silent)) == 1
    assert len(read(path)) == 4


def test_what_is_measured() -> None:
    few, many = measure(80, 2, 2), measure(80, 12, 12)
    assert few.unargmaxable > 50
    assert many.unargmaxable == many.undecided == 0
    assert few.argmaxable + few.unargmaxable + few.undecided == 80
    assert few.points >= 1


def test_layers_are_uniform_and_reproducible() -> None:
    one, same = random_layer(1000, 5, 3, bias=True), random_layer(1000, 5, 3, bias=True)
    assert bool((one.weight == same.weight).all())
    assert one.bias is not None
    for values in (one.weight, one.bias):
        assert -1 <= float(values.min()) < -0.95
        assert 0.95 < float(values.max()) <= 1
    assert random_layer(1000, 5, 3).bias is None


def test_two_curves() -> None:
    found = [measure(60, d, d, bias=bias) for d in (2, 9) for bias in (False, True)]
    above, below = draw(found).axes
    curves = [line for line in above.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in curves] == ["Wx", "Wx + b"]
    assert curves[0].get_ydata()[0] == found[0].unargmaxable
    assert len(below.lines) == 2


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "classes,features\n1,2\n"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(FigureError, match="expected a CSV file with classes"):
        measure_all(path, 10, [2], 0)
    assert path.read_text() == text
