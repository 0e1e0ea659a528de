"""Found by trying to break the monitor: each of these once hung, crashed or fell silent."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unarg_callback import JsonLines, Monitor
from unarg_callback.dashboards.json_lines import read_json_lines
from unarg_callback.errors import UnargError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.monitoring.activation_range import ActivationRange
from unarg_callback.monitoring.events import Event

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.usefixtures("time_enough")


def moving(monitor: Monitor, steps: int = 12) -> nn.Linear:
    """A layer that gains and loses classes at nearly every step."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 40)
    draw = torch.Generator().manual_seed(1)
    monitor.start(layer)
    for step in range(1, steps + 1):
        with torch.no_grad():
            layer.weight += torch.randn(layer.weight.shape, generator=draw)
        monitor.step(layer, step)
        if monitor._background is not None and monitor._background._thread is not None:
            monitor._background._thread.join()
    monitor.finish(layer, steps)
    return layer


@pytest.mark.parametrize("background", [False, True])
def test_an_event_may_ask_for_the_state(background: bool) -> None:
    states: list[Any] = []

    def save(event: Event) -> None:
        buffer = io.BytesIO()
        torch.save(monitor.state_dict(), buffer)
        buffer.seek(0)
        states.append((event.step, torch.load(buffer, weights_only=True)))

    monitor = Monitor(every_n_steps=1, max_overhead=None, on_event=save, background=background)
    moving(monitor)
    assert states
    for step, state in states:
        # What it is told of is in the state.
        assert state["heads"]["output"]["records"][-1]["step"] >= step


def test_an_event_may_draw_random_numbers() -> None:
    def drawn(on_event: Any) -> list[float]:
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        moving(Monitor(every_n_steps=1, max_overhead=None, on_event=on_event))
        return [*torch.rand(2).tolist(), np.random.rand()]  # noqa: NPY002

    heard: list[Event] = []

    def draw(event: Event) -> None:
        heard.append(event)
        torch.rand(7), np.random.rand(7)  # noqa: NPY002

    assert drawn(draw) == drawn("ignore")
    assert heard


def test_events_are_heard_in_the_thread_that_trains() -> None:
    import threading

    names: set[str] = set()
    monitor = Monitor(
        every_n_steps=1,
        background=True,
        on_event=lambda event: names.add(threading.current_thread().name),
    )
    moving(monitor)
    assert names <= {threading.current_thread().name}


ENDING = """
import torch
from unarg_callback import Monitor
torch.manual_seed(0)
layer = torch.nn.Linear(6, 6000)
monitor = Monitor(every_n_steps=2, background=True)
monitor.start(layer)
for step in range(1, 4):
    monitor.step(layer, step)
assert monitor._background.busy
{end}
"""


@pytest.mark.parametrize(
    ("end", "status"), [("raise SystemExit(3)", 3), ("raise ValueError('no')", 1), ("", 0)]
)
def test_a_program_that_ends_during_a_check_in_the_background(end: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(end=end)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == status, done.stderr
    assert "terminate called" not in done.stderr


def test_a_check_that_is_asked_to_stop_leaves_the_rest_undecided() -> None:
    torch.manual_seed(0)
    layer = OutputLayer(torch.randn(3000, 4))
    report = IncrementalVerifier().update(layer, stop=lambda: True)
    assert not report.complete
    assert report.counts["undecided"] > 0


@pytest.mark.parametrize(
    "transform",
    [
        lambda model: torch.func.vmap(model)(torch.randn(3, 8)),
        lambda model: torch.func.jacrev(model)(torch.randn(8)),
        lambda model: torch.func.jacfwd(model)(torch.randn(8)),
        lambda model: torch.func.hessian(lambda x: model(x).sum())(torch.randn(8)),
    ],
)
def test_inputs_of_a_transformed_layer_are_left_alone(transform: Any) -> None:
    layer = nn.Linear(8, 4)
    with ActivationRange().attach(layer) as observed:
        transform(layer)
        assert observed.tokens == 0
        layer(torch.randn(5, 8))
        assert observed.tokens == 5


def test_numbers_of_other_types(tmp_path: Path) -> None:
    monitor = Monitor(
        every_n_steps=np.int64(2),
        time_limit=np.float32(5.0),
        patience=np.int64(20),
        outputs=[JsonLines(tmp_path)],
    )
    layer = nn.Linear(3, 20)
    for step in (np.int64(0), torch.tensor(2)):
        monitor.step(layer, step)  # type: ignore[arg-type]
    assert [line["step"] for line in read_json_lines(tmp_path)] == [0, 2]
    buffer = io.BytesIO()
    torch.save(monitor.state_dict(), buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("step", [1.5, float("nan"), True, -1, "3", None])
def test_steps_that_are_none(step: Any) -> None:
    with pytest.raises(UnargError, match="step is .*; expected a whole number from 0"):
        Monitor().step(nn.Linear(3, 20), step)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"time_limit": "5"}, "time_limit is '5'; expected seconds above 0"),
        ({"time_limit": [5]}, "time_limit"),
        ({"patience": 2.5}, "patience is 2.5; expected a whole number"),
        ({"every_n_steps": "5"}, "every_n_steps is '5'"),
        ({"most_gathered": -1}, "most_gathered is -1"),
        ({"background": "false"}, "background is 'false'; expected True or False"),
        ({"observe": 1}, "observe is 1; expected True or False"),
        ({"at_start": None}, "at_start is None"),
        ({"outputs": "abc"}, "outputs is 'abc'; expected a list of objects"),
        ({"outputs": [5]}, "outputs"),
        ({"outputs": 5}, "outputs"),
        ({"domain": True}, "domain is True"),
        ({"domain": len}, "domain is"),
        ({"bias": 5}, "bias is 5; expected an attribute path"),
        ({"exclude": b"5"}, "exclude is b'5'"),
        ({"exclude": torch.tensor(5)}, "exclude is tensor"),
    ],
)
def test_arguments_of_the_wrong_kind(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UnargError, match=told):
        Monitor(**options)


@pytest.mark.parametrize("labels", [5, True, len])
def test_labels_of_the_wrong_kind(labels: Any) -> None:
    with pytest.raises(UnargError, match="labels is .*; expected names in a list"):
        Monitor(labels=labels).start(nn.Linear(3, 20))


@pytest.mark.parametrize("name", ["fifo", "folder", "nul\0"])
def test_labels_that_are_no_file(tmp_path: Path, name: str) -> None:
    if name == "fifo":
        os.mkfifo(tmp_path / name)
    if name == "folder":
        (tmp_path / name).mkdir()
    with pytest.raises(UnargError, match="no regular file"):
        Monitor(labels=str(tmp_path / name)).start(nn.Linear(3, 20))


def test_a_function_that_fails_says_whose_fault_it_is() -> None:
    def broken_layer(model: nn.Module) -> torch.Tensor:
        raise ValueError("boom")

    with pytest.raises(UnargError, match=r"broken_layer.* \(a function\) failed: ValueError: boom"):
        Monitor(broken_layer).start(nn.Linear(3, 20))


@pytest.mark.parametrize("state", [None, float("nan"), True, []])
def test_no_state_at_all(state: Any) -> None:
    monitor = Monitor()
    monitor.load_state_dict(state)
    assert monitor.records == []


def test_where_lines_go() -> None:
    with pytest.raises(UnargError, match="folder is None"):
        JsonLines(None)  # type: ignore[arg-type]


def test_warnings_as_errors_do_not_retire_it() -> None:
    code = (
        "import torch\nfrom unarg_callback import Monitor\n"
        "layer = torch.nn.Linear(3, 20)\nmonitor = Monitor(every_n_steps=1, on_event='warn')\n"
        "monitor.start(layer)\nlayer.weight.data[0] = float('nan')\nmonitor.step(layer, 1)\n"
        "assert monitor.retired is None, monitor.retired\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "NaN" in done.stderr
