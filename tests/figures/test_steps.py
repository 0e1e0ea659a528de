"""Figures 11 and 12: a dot a class, of the right kind, at the right height."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")

from tests.shared_data import load_layer, needs_shared
from unarg_callback import OutputLayer, Status, verify
from unarg_callback.figures.steps import draw_steps, paper_steps, steps_of


def a_layer() -> OutputLayer:
    return OutputLayer(np.random.default_rng(2).normal(size=(150, 3)), excluded=[0, 5])


def test_every_class_that_takes_part_is_a_dot() -> None:
    report = verify(a_layer())
    steps = steps_of(report)
    (axes,) = draw_steps(steps, "a title").axes
    assert axes.get_title() == "a title"
    dots = {line.get_label().split(":")[0]: line for line in axes.lines}
    lost = dots["unargmaxable"]
    assert len(lost.get_xdata()) == report.counts["unargmaxable"]
    active = np.flatnonzero(report.status != Status.EXCLUDED)
    assert active[lost.get_xdata() - 1].tolist() == report.ids(Status.UNARGMAXABLE).tolist()
    total = sum(len(line.get_xdata()) for name, line in dots.items() if name != "mean")
    assert total == 148
    # Within the shift that keeps them apart, the height is one more than the reflections.
    heights = lost.get_ydata() / (steps.reflections[lost.get_xdata() - 1] + 1)
    assert ((heights > 0.89) & (heights < 1.11)).all()


def test_the_papers_search_uses_up_its_patience_on_what_it_cannot_find() -> None:
    layer = a_layer()
    report = verify(layer)
    steps = paper_steps(layer, report, 20)
    lost = steps.status == Status.UNARGMAXABLE
    assert steps.potential[lost].all()
    assert (steps.reflections[lost] == 20).all()
    assert (steps.reflections[~steps.potential] <= 20).all()


@needs_shared
def test_a_real_layer() -> None:
    weight, bias, _ = load_layer("g2pm")
    (axes,) = draw_steps(steps_of(verify(OutputLayer(weight, bias)))).axes
    assert "unargmaxable: 226" in [line.get_label() for line in axes.lines]
