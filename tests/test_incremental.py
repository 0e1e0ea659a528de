"""IncrementalVerifier against verify: the same verdicts along a drifting layer, each one proven."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import linprog

from tests.independent import ExactLayer, check_proofs
from tests.layer_updates import DOMAINS, Drift, Step, drift, drifts, random_drift
from unarg_callback import (
    Domain,
    DomainError,
    IncrementalVerifier,
    LayerError,
    OutputLayer,
    Report,
    Status,
    verify,
)
from unarg_callback.errors import UnargError
from unarg_callback.search import reflect

SEEDS = range(27)
UPDATES = 8


def follow(sequence: Drift) -> None:
    """Check every layer of a sequence, warm and cold."""
    verifier = IncrementalVerifier(sequence.domain, **sequence.options)
    age = np.zeros(len(sequence.steps[0].weight), dtype=np.int64)
    for at, step in enumerate(sequence.steps):
        where = f"step {at} ({step.update}) of {sequence}"
        before = verifier.last_report
        if step.update == "nan":
            with pytest.raises(LayerError):
                step.layer()
            assert verifier.last_report is before, where
            continue
        warm = verifier.update(step.layer())
        cold = verify(step.layer(), sequence.domain, **sequence.options)
        assert warm.reuse.warm is (before is not None), where
        require_sound(warm, step, where)
        require_same(warm, cold, step, where)
        assert verifier.last_report is warm, where
        age = np.where(warm.status == Status.UNDECIDED, age + 1, 0)
        np.testing.assert_array_equal(warm.age, age, where)


def require_sound(report: Report, step: Step, where: str = "") -> None:
    """Every proof holds in exact arithmetic, and the figures of the report say no more than it."""
    try:
        summary = check_proofs(vars(report.proofs), *step.exact())
    except AssertionError as cause:
        raise AssertionError(f"{cause}; {where}") from cause
    np.testing.assert_array_equal(report.status, report.proofs.status, where)
    wrong = [t for t, lead in summary.leads.items() if lead is not None and report.lead[t] > lead]
    wrong += [t for t, bound in summary.bounds.items() if report.lead[t] < bound]
    assert not wrong, where
    undecided = report.status == Status.UNDECIDED
    assert np.isnan(report.lead[undecided]).all(), where
    assert report.potential[report.status == Status.UNARGMAXABLE].all(), where
    for certificate in report.proofs.certificates():
        assert report.rival[certificate.index] in certificate.support, where
    assert ((report.age > 0) == undecided).all(), where


def require_same(warm: Report, cold: Report, step: Step, where: str = "") -> None:
    """The same verdicts.

    Two proven verdicts never differ. What the cold check decides, the warm one does too, unless the
    best lead is as close to min_lead as the rounding of the checker; what it decides beyond that is
    proven, since :func:`require_sound` has checked it.
    """
    assert warm.complete, where
    assert cold.complete, where
    assert warm.min_lead == cold.min_lead, where
    assert warm.domain == cold.domain, where
    differing = (warm.status != cold.status) & (cold.status != Status.UNDECIDED)
    undecided = warm.status == Status.UNDECIDED
    contradicted = np.flatnonzero(differing & ~undecided).tolist()
    assert not contradicted, f"{contradicted} are contradicted; {where}"
    missed = np.flatnonzero(differing & undecided).tolist()
    if missed:
        layer = ExactLayer(*step.exact())
        clear = [(t, int(cold.status[t])) for t in missed if not borderline(layer, warm, t)]
        assert not clear, f"(class, cold status) {clear} are undecided; {where}"
    np.testing.assert_array_equal(warm.duplicate_of, cold.duplicate_of, where)


def borderline(layer: ExactLayer, report: Report, index: int) -> bool:
    """Whether float64 can't tell the best lead of a class from min_lead.

    The best lead is between those of the point and of the weights that one linear programme finds.
    """
    if report.domain.is_free:
        return False
    low, high = report.domain.bounds(layer.dim)
    rivals = layer.active[layer.active != index]
    slope = layer.weight[index] - layer.weight[rivals]
    offset = layer.bias[index] - layer.bias[rivals]
    reach = np.maximum(np.abs(low), np.abs(high))
    span = reach @ np.ptp(layer.weight[layer.active], axis=0) + np.ptp(layer.bias[layer.active])
    result = linprog(
        [0.0] * layer.dim + [-1.0],
        A_ub=np.hstack([-slope, np.full((len(rivals), 1), span)]) / span,
        b_ub=offset / span,
        bounds=[*zip(low, high, strict=True), (None, None)],
        method="highs",
    )
    assert result.x is not None
    least = layer.lead(index, np.clip(result.x[:-1], low, high))
    weight = np.maximum(-result.ineqlin.marginals, 0.0)
    most = layer.box_bound(index, rivals, weight, low, high)
    rounding = 32 * 2.0**-53 * (layer.dim + 8) * span
    return bool(least is not None and least - rounding <= report.min_lead <= most + rounding)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_warm_equals_cold(domain: str, seed: int) -> None:
    follow(random_drift(seed, domain, updates=UPDATES))


def test_that_was_a_thousand_updates() -> None:
    sequences = [
        random_drift(seed, domain, updates=UPDATES) for domain in DOMAINS for seed in SEEDS
    ]
    updates = [step.update for sequence in sequences for step in sequence.steps[1:]]
    assert sum(update != "nan" for update in updates) >= 1000


@settings(deadline=None, print_blob=True, max_examples=30)
@given(drifts())
def test_warm_equals_cold_for_any_sequence(sequence: Drift) -> None:
    follow(sequence)


@pytest.mark.parametrize("seed", range(8))
def test_sweeps_of_few_classes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    # A class of a later sweep may have been proven by an earlier one, at another class's point.
    monkeypatch.setattr(reflect, "_SWEEP", 16)
    updates = ["small steps", "all far", "small steps"]
    follow(drift(seed, "box:100", "gaussian", updates, classes=120, dim=4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
@pytest.mark.parametrize("domain", DOMAINS)
def test_warm_equals_cold_at_length(domain: str, seed: int) -> None:
    follow(random_drift(seed, domain, updates=20, largest=120))


CROWDED = drift(
    1,
    "box:100",
    "crowded",
    ["small steps", "midpoint", "copied", "one far", "small steps"],
    classes=120,
    dim=4,
)


def started(step: Step = CROWDED.steps[0], **options: Any) -> IncrementalVerifier:
    verifier = IncrementalVerifier("box:100", **options)
    verifier.update(step.layer())
    return verifier


@pytest.mark.parametrize("domain", DOMAINS)
def test_an_unchanged_layer_costs_no_search(domain: str) -> None:
    sequence = drift(2, domain, "crowded", ["same", "same"], classes=100, dim=4, excluded=5)
    verifier = IncrementalVerifier(sequence.domain)
    first = verifier.update(sequence.steps[0].layer())
    assert not first.reuse.warm
    assert min(first.counts["argmaxable"], first.counts["unargmaxable"]) > 5
    for step in sequence.steps[1:]:
        again = verifier.update(step.layer())
        assert again.reuse.warm
        assert again.reuse.searched == again.reuse.solved == 0
        np.testing.assert_array_equal(again.status, first.status)
        require_sound(again, step)


def test_nan_in_between_costs_nothing() -> None:
    sequence = drift(3, "box:100", "crowded", ["nan", "small steps"], classes=80, dim=4)
    start, broken, then = sequence.steps
    verifier = started(start)
    before = verifier.last_report
    with pytest.raises(LayerError, match="NaN"):
        verifier.update(broken.layer())
    assert verifier.last_report is before
    report = verifier.update(then.layer())
    assert report.reuse.warm
    require_sound(report, then)
    require_same(report, verify(then.layer()), then)


@pytest.mark.parametrize("domain", DOMAINS)
def test_nothing_starves_without_any_time(domain: str) -> None:
    sequence = drift(4, domain, "crowded", [], classes=100, dim=4)
    step = sequence.steps[0]
    verifier = IncrementalVerifier(sequence.domain)
    cold = verify(step.layer(), sequence.domain)
    assert cold.counts["undecided"] == 0
    ages = np.zeros(100, dtype=np.int64)
    for checks in range(100):
        report = verifier.update(step.layer(), time_limit=0.0)
        require_sound(report, step)
        undecided = report.status == Status.UNDECIDED
        assert (report.status == cold.status)[~undecided].all()
        assert report.complete <= (not undecided.any())
        # On a layer that stays as it is every proof still holds.
        assert not (undecided & (ages == 0)).any() or not checks
        ages = np.where(undecided, ages + 1, 0)
        np.testing.assert_array_equal(report.age, ages)
        if not undecided.any():
            break
    np.testing.assert_array_equal(report.status, cold.status)
    assert checks > 0
    assert verifier.update(step.layer()).complete


@pytest.mark.parametrize("domain", DOMAINS)
def test_without_any_time_on_changing_layers_nothing_is_wrong(domain: str) -> None:
    sequence = random_drift(12, domain, updates=20)
    verifier = IncrementalVerifier(sequence.domain, **sequence.options)
    for step in sequence.steps:
        if step.update == "nan":
            continue
        report = verifier.update(step.layer(), time_limit=0.0)
        require_sound(report, step)
        cold = verify(step.layer(), sequence.domain, **sequence.options)
        both = (report.status != Status.UNDECIDED) & (cold.status != Status.UNDECIDED)
        assert (report.status == cold.status)[both].all()


def _changed(what: str, step: Step) -> OutputLayer:
    weight, bias = step.weight, step.bias
    assert bias is not None
    if what == "classes":
        return OutputLayer(weight[:-1], bias[:-1])
    if what == "features":
        return OutputLayer(weight[:, :-1], bias)
    if what == "names":
        return OutputLayer(weight, bias, names=[f"n{i}" for i in range(len(weight))])
    return OutputLayer(weight, bias, excluded=[1, 5])


@pytest.mark.parametrize("what", ["classes", "features", "names", "excluded"])
def test_another_problem_starts_cold_and_says_so(what: str) -> None:
    step = CROWDED.steps[0]
    verifier = started()
    layer = _changed(what, step)
    report = verifier.update(layer)
    assert not report.reuse.warm
    assert any("from nothing" in note for note in report.notes), report.notes
    np.testing.assert_array_equal(report.status, verify(layer).status)
    assert verifier.update(layer).reuse.warm
    back = verifier.update(step.layer())
    assert not back.reuse.warm
    require_sound(back, step)
    require_same(back, verify(step.layer()), step)


def test_reset_forgets() -> None:
    verifier = started()
    verifier.reset()
    assert verifier.last_report is None
    report = verifier.update(CROWDED.steps[0].layer())
    assert not report.reuse.warm
    require_same(report, verify(CROWDED.steps[0].layer()), CROWDED.steps[0])


def test_a_domain_that_does_not_fit_changes_nothing() -> None:
    step = CROWDED.steps[0]
    verifier = IncrementalVerifier(Domain.box(np.full(4, 100.0)))
    before = verifier.update(step.layer())
    with pytest.raises(DomainError):
        verifier.update(OutputLayer(step.weight[:, :3], step.bias))
    assert verifier.last_report is before
    again = verifier.update(step.layer())
    assert again.reuse.warm
    np.testing.assert_array_equal(again.status, before.status)


def _arrays(report: Report) -> dict[str, Any]:
    named = {**vars(report.proofs), **vars(report.evidence), **vars(report)}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("domain", DOMAINS)
def test_reports_of_earlier_updates_stay_as_they_are(domain: str, seed: int) -> None:
    sequence = random_drift(500 + seed, domain, updates=6)
    verifier = IncrementalVerifier(sequence.domain, **sequence.options)
    kept: list[tuple[Step, Report, dict[str, Any]]] = []
    for step in sequence.steps:
        if step.update != "nan":
            report = verifier.update(step.layer())
            kept.append((step, report, copy.deepcopy(_arrays(report))))
    for step, report, then in kept:
        for name, array in _arrays(report).items():
            np.testing.assert_array_equal(array, then[name], f"{name}, {step.update}")
        require_sound(report, step, str(sequence))


def test_what_the_caller_does_to_a_report_misleads_nobody() -> None:
    step = CROWDED.steps[1]
    verifier = started()
    report = verifier.last_report
    assert report is not None
    for array in {**vars(report.proofs), **vars(report)}.values():
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = 1
    again = verifier.update(step.layer())
    require_sound(again, step)
    require_same(again, verify(step.layer()), step)


@pytest.mark.parametrize("same_object", [True, False])
def test_weights_changed_in_place_are_seen(same_object: bool) -> None:
    # As an optimizer does: nothing of the verifier may hang on the tensors it was given.
    one, other = CROWDED.steps[0], CROWDED.steps[-1]
    weight = one.weight.clone()
    assert one.bias is not None
    assert other.bias is not None
    bias = one.bias.clone()
    layer = OutputLayer(weight, bias)
    verifier = IncrementalVerifier("box:100")
    first = verifier.update(layer)
    then = copy.deepcopy(_arrays(first))
    weight.copy_(other.weight)
    bias.copy_(other.bias)
    report = verifier.update(layer if same_object else OutputLayer(weight, bias))
    require_sound(report, other)
    require_same(report, verify(other.layer()), other)
    for name, array in _arrays(first).items():
        np.testing.assert_array_equal(array, then[name], name)
    require_sound(first, one)


def test_a_deep_copy_goes_its_own_way() -> None:
    verifier = started()
    twin = copy.deepcopy(verifier)
    for step in CROWDED.steps[1:]:
        verifier.update(step.layer())
    step = CROWDED.steps[1]
    report = twin.update(step.layer())
    assert report.reuse.warm
    require_sound(report, step)
    require_same(report, verify(step.layer()), step)


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """The state after a way through a file that holds no code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_saved_state_goes_on_where_it_was(domain: str, seed: int) -> None:
    sequence = random_drift(700 + seed, domain, updates=5)
    verifier = IncrementalVerifier(sequence.domain, **sequence.options)
    ages: np.ndarray | None = None
    for step in sequence.steps:
        if step.update == "nan":
            continue
        other = IncrementalVerifier(sequence.domain, **sequence.options)
        other.load_state_dict(stored(verifier.state_dict()))
        report, resumed = verifier.update(step.layer()), other.update(step.layer())
        assert resumed.reuse.warm == report.reuse.warm == (ages is not None)
        np.testing.assert_array_equal(resumed.status, report.status, str(sequence))
        np.testing.assert_array_equal(resumed.age, report.age)
        require_sound(resumed, step, str(sequence))
        ages = report.age


def test_a_saved_state_keeps_the_ages() -> None:
    step = CROWDED.steps[0]
    verifier = IncrementalVerifier("box:100")
    before = verifier.update(step.layer(), time_limit=0.0)
    assert before.age.max() == 1
    other = IncrementalVerifier("box:100")
    other.load_state_dict(stored(verifier.state_dict()))
    report = other.update(step.layer(), time_limit=0.0)
    undecided = report.status == Status.UNDECIDED
    np.testing.assert_array_equal(report.age[undecided], before.age[undecided] + 1)


def test_a_state_does_not_change_with_its_verifier() -> None:
    verifier = started()
    state = verifier.state_dict()
    then = copy.deepcopy(state)
    for step in CROWDED.steps[1:]:
        verifier.update(step.layer())
    assert all(_equal(_at(state, path), _at(then, path)) for path in paths(then))


Path = tuple[Any, ...]


def paths(state: Any, start: Path = ()) -> Iterator[Path]:
    """Where the tensors and builtins of a state are; what is neither fails the test."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from paths(value, (*start, key))
    elif isinstance(state, (list, tuple)):
        for at, value in enumerate(state):
            yield from paths(value, (*start, at))
    else:
        kinds = (torch.Tensor, bool, int, float, str, type(None))
        assert type(state) in kinds, f"{start}: {type(state)}"
        yield start


def _at(state: Any, path: Path) -> Any:
    for key in path:
        state = state[key]
    return state


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(0.25), other.nan_to_num(0.25))
    return bool(one == other)


def _put(state: Any, path: Path, value: Any) -> Any:
    """A copy of the state with one value in place of another."""
    if not path:
        return value
    changed = state.copy() if isinstance(state, dict) else list(state)
    changed[path[0]] = _put(state[path[0]], path[1:], value)
    return tuple(changed) if isinstance(state, tuple) else changed


def _some(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """Every third entry replaced, by a value that the dtype holds."""
    changed = tensor.clone()
    if not tensor.is_floating_point() and tensor.dtype != torch.bool:
        bounds = torch.iinfo(tensor.dtype)
        value = 0 if np.isnan(value) else int(np.clip(value, bounds.min // 2, bounds.max // 2))
    changed.view(-1)[::3] = value
    return changed


def _shuffled(tensor: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(0))
    return tensor.reshape(-1)[order].reshape(tensor.shape)


DAMAGE: dict[str, Callable[[torch.Tensor], Any]] = {
    "nan": lambda tensor: _some(tensor, float("nan")),
    "inf": lambda tensor: _some(tensor, float("inf")),
    "huge": lambda tensor: _some(tensor, 2.0**62),
    "negative": lambda tensor: _some(tensor, -1.0),
    "far negative": lambda tensor: _some(tensor, -(2.0**40)),
    "zero": torch.zeros_like,
    "one": torch.ones_like,
    "out of range": lambda tensor: _some(tensor, 20.0),
    "no class at all": lambda tensor: _some(tensor, 24.0),
    "negated": lambda tensor: ~tensor if tensor.dtype == torch.bool else -tensor,
    "shuffled": _shuffled,
    "reversed": lambda tensor: tensor.flip(0) if tensor.ndim else tensor,
    "next": lambda tensor: tensor.roll(1),
    "shorter": lambda tensor: tensor[:-1] if tensor.ndim else tensor[None],
    "longer": lambda tensor: torch.cat([tensor, tensor]) if tensor.ndim else tensor[None],
    "empty": lambda tensor: tensor.reshape(-1)[:0],
    "deeper": lambda tensor: tensor[None],
    "flat": lambda tensor: tensor.reshape(-1),
    "another dtype": lambda tensor: tensor.to(torch.complex64),
    "float16": lambda tensor: tensor.to(torch.float16),
    "int32": lambda tensor: tensor.nan_to_num().to(torch.int32),
    "boolean": lambda tensor: tensor != 0,
    "none": lambda _: None,
    "text": lambda _: "proof",
    "list": lambda tensor: tensor.tolist(),
}

OTHER_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    121,
    2**70,
    0.5,
    float("nan"),
    "",
    "free",
    [],
    {},
    [1, "a"],
)


def damaged(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """States that differ in one place from a good one, and what differs."""
    for path in paths(state):
        value = _at(state, path)
        if isinstance(value, torch.Tensor):
            for name, change in DAMAGE.items():
                yield f"{path} {name}", _put(state, path, change(value))
        else:
            for other in OTHER_VALUES:
                yield f"{path} = {other!r}", _put(state, path, other)
    for key in state:
        yield f"no {key}", {name: value for name, value in state.items() if name != key}
    yield "nothing", {}
    yield "another key", {**state, "unknown": 1}


@pytest.mark.parametrize("domain", ["box:100", "free"])
def test_a_damaged_state_never_gives_a_wrong_verdict(domain: str) -> None:
    sequence = drift(
        6,
        domain,
        "crowded",
        ["copied", "small steps"],
        classes=24,
        dim=2,
        dtype=torch.float32,
        excluded=4,
    )
    verifier = IncrementalVerifier(domain)
    for step in sequence.steps[:-1]:
        verifier.update(step.layer())
    state = verifier.state_dict()
    clean = copy.deepcopy(state)
    colds = [verify(step.layer(), domain) for step in sequence.steps]
    warm = cold = 0
    for name, bad in damaged(state):
        step, expected = sequence.steps[len(name) % 3], colds[len(name) % 3]
        other = IncrementalVerifier(domain)
        other.load_state_dict(bad)
        try:
            report = other.update(step.layer())
        except Exception as cause:
            raise AssertionError(f"{name}: {type(cause).__name__}: {cause}") from cause
        require_sound(report, step, name)
        require_same(report, expected, step, name)
        assert report.reuse.warm or not bad or any("nothing" in note for note in report.notes)
        warm, cold = warm + report.reuse.warm, cold + (not report.reuse.warm)
    # What can be noticed is, and what can't be is only tried.
    assert min(warm, cold) > 20
    assert all(_equal(_at(state, path), _at(clean, path)) for path in paths(clean))


def test_a_best_lead_of_exactly_min_lead() -> None:
    # Representable to the last bit, and so are its neighbours.
    weight = np.array([[-1.0], [0.0], [1.0]])
    verifier = IncrementalVerifier("box:1000", min_lead=0.5)
    for bias in (999.0, 999.5, np.nextafter(999.5, 0), np.nextafter(999.5, 1e9), 999.5, 1000.0):
        raised = np.array([0.0, bias, 0.0])
        step = Step("bias", torch.from_numpy(weight), torch.from_numpy(raised), ())
        report = verifier.update(step.layer())
        require_sound(report, step, f"{bias!r}")
        if abs(bias - 999.5) > 1e-6:
            expected = Status.ARGMAXABLE if bias < 999.5 else Status.UNARGMAXABLE
            assert report.status[0] == report.status[2] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_another_dtype_is_another_layer_of_the_same_problem(dtype: torch.dtype) -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3)))
    verifier = IncrementalVerifier("box:100")
    verifier.update(OutputLayer(rows))
    step = Step("dtype", rows.to(dtype), None, ())
    report = verifier.update(step.layer())
    require_sound(report, step)
    require_same(report, verify(step.layer()), step)
    with_bias = Step("bias", rows.to(dtype), rows[:, 0].to(dtype), ())
    report = verifier.update(with_bias.layer())
    require_sound(report, with_bias)
    require_same(report, verify(with_bias.layer()), with_bias)


def test_a_change_too_large_for_the_screen() -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(20, 3, dtype=torch.float64, generator=draw)
    moved = weight + 1e15 * torch.randn(20, 3, dtype=torch.float64, generator=draw)
    verifier = IncrementalVerifier("box:1e150", sweep_dtype=torch.float64)
    verifier.update(OutputLayer(weight))
    report = verifier.update(OutputLayer(moved))
    cold = verify(OutputLayer(moved), "box:1e150", sweep_dtype=torch.float64)
    assert report.status.tolist() == cold.status.tolist()


def test_an_update_that_is_interrupted_leaves_what_belongs_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.1, 0.0]])
    after = before.clone()
    after[3] = torch.tensor([1.0, 2.0])
    verifier = IncrementalVerifier()
    first = verifier.update(OutputLayer(before))

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    for what in ("report_of", "Held", "Renewal"):
        with monkeypatch.context() as patch:
            patch.setattr(f"unarg_callback.incremental.{what}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                verifier.update(OutputLayer(after))
        assert verifier.last_report is first
    assert verifier.update(OutputLayer(after)).counts["unargmaxable"] == 0
    assert first.counts["unargmaxable"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1.5},
        {"patience": True},
        {"min_lead": "1"},
        {"sweep_dtype": torch.float16},
        {"deepen": -1},
        {"deepen": 1.5},
        {"exact": "simplex"},
    ],
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(UnargError, match=next(iter(options))):
        IncrementalVerifier(**options)


def test_bad_arguments_of_an_update() -> None:
    verifier = IncrementalVerifier()
    with pytest.raises(UnargError, match="expected an OutputLayer"):
        verifier.update(torch.zeros(3, 2))  # type: ignore[arg-type]
    with pytest.raises(UnargError, match="time_limit"):
        verifier.update(OutputLayer(torch.eye(3)), time_limit="1")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        verifier.domain = "free"  # type: ignore[assignment, misc]


@pytest.mark.parametrize("state", [{"classes": 10**13}, {"dim": float("inf")}, {"half": None}])
def test_absurd_states(state: dict[str, Any]) -> None:
    verifier = IncrementalVerifier()
    verifier.update(OutputLayer(torch.eye(3)))
    other = IncrementalVerifier()
    other.load_state_dict({**verifier.state_dict(), **state})
    report = other.update(OutputLayer(torch.eye(3)))
    assert not report.reuse.warm
    assert "damaged" in report.notes[0] or "points" in report.notes[0]
    other.load_state_dict(torch.zeros(2))  # type: ignore[arg-type]
    assert other.update(OutputLayer(torch.eye(3))).notes
