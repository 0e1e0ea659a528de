"""What is kept between updates: its way through a file, and what of it can't be used."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.search import random_layer
from unarg_callback import Domain, DomainError, OutputLayer, Status, UnargError
from unarg_callback.continuity import Held, Shape
from unarg_callback.geometry.checker import Checker
from unarg_callback.search.limits import Limits
from unarg_callback.search.stages import Stages
from unarg_callback.verification import from_scratch

EXCLUDED = (2, 17)
ACTIVE = 58
TENSORS = (
    *("status", "support", "weight", "targets", "offsets", "age", "waiting", "failed", "resting"),
    *("low", "high", "half", "odd", "full"),
)
BOX = Domain.box([-50.0, -100.0, -1.0], [50.0, 100.0, 7.0])


def held_of(domain: Domain = BOX, with_bias: bool = True) -> Held:
    """What one check keeps, with certificates, points off the grid, and figures of all kinds."""
    weight, _ = random_layer("gaussian", 60, 3, seed=1)
    bias = np.random.default_rng(2).normal(size=60) if with_bias else None
    layer = OutputLayer(weight.astype(np.float32), bias, names=[str(i) for i in range(60)])
    layer = OutputLayer(layer.weight, layer.bias, names=layer.names, excluded=EXCLUDED)
    stages = Stages(Checker(layer, domain), Limits())
    from_scratch(stages, None, "interior_point")
    stages.state.point[5] += 0.1
    rng = np.random.default_rng(3)
    return Held(
        layer=layer,
        shape=Shape.of(layer),
        evidence=stages.evidence(),
        age=rng.integers(0, 9, ACTIVE).astype(np.int16),
        waiting=rng.integers(0, 9, ACTIVE).astype(np.int16),
        failed=rng.random(ACTIVE) < 0.5,
        resting=rng.integers(-3, 4, ACTIVE).astype(np.int8),
    )


@pytest.fixture(scope="module")
def held() -> Held:
    kept = held_of()
    assert len(kept.evidence.certificates) > 3
    assert len(kept.evidence.points.odd) >= 1
    assert int((kept.evidence.status == Status.ARGMAXABLE).sum()) > 10
    return kept


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


class TestShape:
    SHAPE = Shape(10, 4, (1, 2), "digest")

    def test_the_same_layer_differs_in_nothing(self) -> None:
        layer = OutputLayer(np.eye(4), names=list("abcd"), excluded=[3])
        shape = Shape.of(layer)
        assert (shape.classes, shape.dim, shape.excluded) == (4, 4, (3,))
        assert shape.difference(Shape.of(layer.copy())) is None
        assert shape.difference(Shape.of(OutputLayer(np.ones((4, 4)), excluded=[3])))
        assert self.SHAPE.difference(self.SHAPE) is None

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"classes": 11}, "was 10 x 4 and is 11 x 4"),
            ({"dim": 5}, "was 10 x 4 and is 10 x 5"),
            ({"excluded": (1,)}, "other classes are excluded"),
            ({"names": ""}, "other names"),
            ({"names": "other"}, "other names"),
            ({"classes": 11, "names": "other"}, "11 x 4"),
        ],
    )
    def test_it_says_what_is_different(self, change: dict[str, Any], said: str) -> None:
        reason = self.SHAPE.difference(replace(self.SHAPE, **change))
        assert reason is not None
        assert said in reason
        assert replace(self.SHAPE, **change).difference(self.SHAPE) is not None

    def test_names_are_told_apart(self) -> None:
        lists = (["a", "b"], ["b", "a"], ["ab", ""], ["", "ab"], ["a", "\udcff"], None)
        digests = [Shape.of(OutputLayer(np.eye(2), names=names)).names for names in lists]
        assert len(set(digests)) == len(lists)
        assert digests[-1] == ""


@pytest.mark.parametrize("domain", [BOX, Domain.box(100.0), Domain.free()])
@pytest.mark.parametrize("with_bias", [True, False])
def test_everything_but_the_layer_comes_back(domain: Domain, with_bias: bool) -> None:
    held = held_of(domain, with_bias)
    back = Held.from_state(through_a_file(held.state_dict()))
    assert back.is_for(domain)
    assert back.layer is None
    assert back.shape == held.shape
    for name in ("age", "waiting", "failed"):
        np.testing.assert_array_equal(getattr(back, name), getattr(held, name))
        assert getattr(back, name).dtype == getattr(held, name).dtype
    assert back.resting.dtype == np.int8
    one, other = held.evidence, back.evidence
    for name in ("active", "status"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    assert (other.classes, other.min_lead) == (60, one.min_lead)
    assert np.isnan(other.lead).all()
    for name, array in vars(one.certificates).items():
        np.testing.assert_array_equal(vars(other.certificates)[name], array)
    everyone = torch.arange(ACTIVE)
    assert torch.equal(other.points.exact(everyone), one.points.exact(everyone))
    again = through_a_file(back.state_dict())
    for name, value in held.state_dict().items():
        same = (
            torch.equal(value, again[name]) if isinstance(value, Tensor) else value == again[name]
        )
        assert same, name


def test_a_state_holds_tensors_and_builtins_alone(held: Held) -> None:
    state = held.state_dict()
    assert {name for name, value in state.items() if isinstance(value, Tensor)} == set(TENSORS)
    rest = {name: type(value) for name, value in state.items() if name not in TENSORS}
    assert set(rest.values()) == {int, float, str, list}
    assert all(type(i) is int for i in state["excluded"])
    assert all(state[name].device.type == "cpu" for name in TENSORS)


def test_a_state_does_not_hang_on_what_it_is_of(held: Held) -> None:
    state = held.state_dict()
    for name in ("status", "age", "targets", "weight", "low"):
        before = state[name].clone()
        state[name].fill_(3)
        assert torch.equal(held.state_dict()[name], before), name


def test_counters_below_zero_are_taken_as_zero(held: Held) -> None:
    state = held.state_dict()
    state["age"], state["waiting"] = state["age"] - 4, state["waiting"] - 4
    back = Held.from_state(state)
    np.testing.assert_array_equal(back.age, (held.age - 4).clip(0))
    np.testing.assert_array_equal(back.waiting, (held.waiting - 4).clip(0))


def _first(value: int) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        return torch.cat([torch.tensor([value], dtype=tensor.dtype), tensor[1:]])

    return change


def _own_class(held: Held) -> Callable[[Tensor], Tensor]:
    return _first(int(held.evidence.certificates.targets[0]))


def require_refused(state: dict[str, Any], what: object) -> None:
    reason = ""
    try:
        Held.from_state(state)
    except UnargError as cause:
        reason = str(cause)
    assert "saved state" in reason, f"{what}: {reason or 'accepted'}"


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_another_kind_is_refused(name: str, held: Held) -> None:
    state = held.state_dict()
    value = state[name]
    others = (torch.int32, torch.int64, torch.float64, torch.bool)
    wrong: list[Any] = [value.to(dtype) for dtype in others if dtype != value.dtype]
    # The points may be float64 where float32 doesn't do.
    wrong = wrong if name != "full" else [w for w in wrong if w.dtype != torch.float64]
    wrong += [value[None], value[..., None], value[:-1], torch.cat([value, value]), value[:0]]
    if value.dtype != torch.bool and not value.is_floating_point():
        wrong.append(value.to(torch.int16 if value.dtype != torch.int16 else torch.int8))
    wrong += [None, 1, "text", [], value.tolist(), value.numpy(), torch.tensor(1)]
    for other in wrong:
        require_refused({**state, name: other}, other)


def test_a_missing_entry_is_refused(held: Held) -> None:
    state = held.state_dict()
    for name in state:
        require_refused({key: value for key, value in state.items() if key != name}, name)
    require_refused({}, "nothing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 2),
        ("version", None),
        ("version", "1"),
        ("classes", 61),
        ("classes", 59),
        ("classes", -1),
        ("classes", None),
        ("classes", "many"),
        ("dim", 4),
        ("dim", 0),
        ("dim", -1),
        ("dim", None),
        ("excluded", [2]),
        ("excluded", [2, 17, 18]),
        ("excluded", [2, 60]),
        ("excluded", None),
        ("excluded", 2),
        ("excluded", ["a", "b"]),
        ("min_lead", None),
        ("min_lead", "low"),
        ("unit", None),
        ("unit", "fine"),
        ("unit", float("nan")),
        ("unit", float("inf")),
    ],
)
def test_another_value_is_refused(name: str, value: object, held: Held) -> None:
    require_refused({**held.state_dict(), name: value}, value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("targets", lambda tensor: tensor.flip(0)),
        ("targets", lambda tensor: tensor[:1].expand(len(tensor)).clone()),
        ("targets", _first(-1)),
        ("targets", lambda tensor: tensor + ACTIVE),
        ("offsets", lambda tensor: tensor + 1),
        ("offsets", lambda tensor: tensor.flip(0)),
        ("offsets", _first(-1)),
        ("support", _first(-1)),
        ("support", _first(ACTIVE)),
        ("support", _first(2**31 - 1)),
        ("odd", lambda tensor: tensor - ACTIVE),
        ("odd", lambda tensor: tensor + ACTIVE),
        ("low", lambda tensor: tensor + 1000),
        ("low", lambda tensor: tensor * torch.inf),
        ("high", lambda tensor: tensor * torch.nan),
        ("high", lambda tensor: tensor - 1000),
    ],
)
def test_values_that_no_check_gives_are_refused(
    name: str, change: Callable[[Tensor], Tensor], held: Held
) -> None:
    state = held.state_dict()
    assert not torch.equal(change(state[name]), state[name])
    require_refused({**state, name: change(state[name])}, change)


def test_a_class_in_its_own_support_is_refused(held: Held) -> None:
    state = held.state_dict()
    require_refused({**state, "support": _own_class(held)(state["support"])}, "its own class")


@pytest.mark.parametrize("domain", [Domain.free(), Domain.box(50.0), Domain.nonnegative(100.0)])
def test_proofs_for_another_domain_are_proposals(domain: Domain, held: Held) -> None:
    back = Held.from_state(held.state_dict())
    assert not back.is_for(domain)
    proposals = held.proposals(domain)
    assert (proposals.layer, proposals.report) == (None, None)
    assert proposals.evidence.points is held.evidence.points
    # Certificates of the free domain are simplices.
    assert len(proposals.evidence.certificates) == (
        0 if domain.is_free else len(held.evidence.certificates)
    )
    assert len(held_of(Domain.free()).evidence.certificates) > 3
    assert not len(held_of(Domain.free()).proposals(BOX).evidence.certificates)


def test_a_domain_of_other_dimensions_fits_no_proofs(held: Held) -> None:
    with pytest.raises(DomainError, match="2 dimensions; expected 3"):
        held.is_for(Domain.box([1.0, 2.0]))


def test_the_same_bounds_are_the_same_domain() -> None:
    back = Held.from_state(held_of(Domain.box(100.0)).state_dict())
    assert back.is_for(Domain.box([100.0, 100.0, 100.0]))
    assert back.is_for(Domain.box(100.0))
    assert not back.is_for(Domain.box([100.0, 100.0, 99.0]))


@pytest.mark.parametrize("with_bias", [True, False])
def test_nbytes_is_what_the_tensors_take(with_bias: bool) -> None:
    held = held_of(with_bias=with_bias)
    assert held.layer is not None
    tensors = [held.layer.weight, *([] if held.layer.bias is None else [held.layer.bias])]
    points, evidence = held.evidence.points, held.evidence
    tensors += [points.half, points.odd, points.full]
    arrays: list[Any] = [evidence.active, evidence.status, evidence.lead, held.age, held.waiting]
    arrays += [held.failed, held.resting, *vars(evidence.certificates).values()]
    layer = sum(t.numel() * t.element_size() for t in tensors[: 1 + with_bias])
    size = sum(t.numel() * t.element_size() for t in tensors) + sum(a.nbytes for a in arrays)
    assert held.nbytes == size
    assert replace(held, layer=None).nbytes == size - layer
    assert layer == 60 * 3 * 4 + 60 * 8 * with_bias


def test_urgency_is_the_wait_with_a_start_for_what_failed(held: Held) -> None:
    expected = held.waiting.astype(int) + 2 * held.failed
    assert held.urgency.dtype == torch.int64
    assert held.urgency.tolist() == expected.tolist()
