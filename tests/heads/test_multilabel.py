"""Multilabel heads: predictions, losses, thresholds, files."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from unarg_callback.activations import ParameterError, Sparsegen, softmax, sparsehourglass
from unarg_callback.heads import MultilabelHead
from unarg_callback.heads.multilabel import METHODS
from unarg_callback.losses import SoftmaxLogLoss, sparsegen_hinge_loss, sparsehourglass_hinge_loss


def separable(rows: int = 200, labels: int = 5) -> tuple[Tensor, Tensor]:
    """Inputs from which a linear layer can tell the labels: one or two each."""
    draw = torch.Generator().manual_seed(0)
    first, second = torch.randint(labels, (2, rows), generator=draw)
    y = torch.zeros(rows, labels)
    y[torch.arange(rows), first] = y[torch.arange(rows), second] = 1
    x = y / y.sum(-1, keepdim=True) + 0.02 * torch.randn(rows, labels, generator=draw)
    return x, y.bool()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_sets_that_can_be_learned(method: str) -> None:
    torch.manual_seed(0)
    x, y = separable()
    head = MultilabelHead.named(method, in_features=5, num_labels=5, lambda_=0.5, q=0.5)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        head.loss(head(x), y).backward()
        optimizer.step()
    if method == "softmax+log":
        head.tune_threshold(head(x), y)
    assert (head.predict(head(x)) == y).all(-1).float().mean() > 0.95


@pytest.mark.parametrize("method", METHODS)
def test_at_zero_loss_the_prediction_is_the_set(method: str) -> None:
    head = MultilabelHead.named(method, in_features=2, num_labels=4, lambda_=0.5, q=0.5)
    y = torch.tensor([[True, True, False, False], [False, False, False, True]])
    z = torch.where(y, 10.0, -10.0)
    assert head.loss(z, y) < 1e-6
    assert torch.equal(head.predict(z), y)


def test_map_and_loss_share_the_parameter() -> None:
    z, y = torch.randn(6, 4), torch.eye(4)[[0, 1, 2, 3, 0, 1]].bool()
    named = {"in_features": 2, "num_labels": 4}
    head = MultilabelHead.named("sparsehourglass+hinge", q=0.25, **named)
    torch.testing.assert_close(head.probabilities(z), sparsehourglass(z, 0.25))
    torch.testing.assert_close(head.loss(z, y), sparsehourglass_hinge_loss(z, y, 0.25))
    head = MultilabelHead.named("sparsegen_lin+hinge", lambda_=-2.0, pairs="unordered", **named)
    expected = sparsegen_hinge_loss(z, y, -2.0, pairs="unordered")
    torch.testing.assert_close(head.loss(z, y), expected)
    head = MultilabelHead.named("sparsemax+hinge", lambda_=-2.0, **named)
    torch.testing.assert_close(head.loss(z, y), sparsegen_hinge_loss(z, y, 0.0))


def test_a_sparse_map_predicts_at_least_one_label() -> None:
    head = MultilabelHead.named("sparsemax+huber", in_features=3, num_labels=7)
    assert head.predict(head(torch.randn(50, 3))).any(-1).all()


def test_softmax_starts_at_the_uniform_probability_and_the_tuned_threshold_is_saved() -> None:
    head = MultilabelHead.named("softmax+log", in_features=5, num_labels=5)
    assert float(head.threshold) == 0.2
    x, y = separable()
    tuned = head.tune_threshold(head(x), y)
    assert tuned != 0.2
    other = MultilabelHead.named("softmax+log", in_features=5, num_labels=5)
    other.load_state_dict(head.state_dict())
    assert float(other.threshold) == tuned
    assert torch.equal(other.predict(other(x)), softmax(head(x)) > tuned)


def test_any_map_and_loss_can_be_joined() -> None:
    head = MultilabelHead(3, 4, Sparsegen(0.5, g="exp"), SoftmaxLogLoss(), threshold=0.1)
    z = head(torch.randn(2, 5, 3))
    assert head.predict(z).shape == (2, 5, 4)
    assert torch.equal(head.predict(z), head.probabilities(z).double() > 0.1)


def test_rows_without_labels_are_left_out_or_refused() -> None:
    z, y = torch.randn(3, 4), torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]])
    head = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=4)
    torch.testing.assert_close(head.loss(z, y), head.loss(z[[0, 2]], y[[0, 2]]))
    strict = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=4, empty="error")
    with pytest.raises(ValueError, match="no label"):
        strict.loss(z, y)


def test_an_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"no 'softmax\+hinge'; expected one of softmax\+log,"):
        MultilabelHead.named("softmax+hinge", in_features=2, num_labels=3)


def test_autocast_and_compile_give_the_same_sets() -> None:
    torch.manual_seed(0)
    x, y = separable()
    head = MultilabelHead.named("sparsegen_lin+huber", in_features=5, num_labels=5)
    step = torch.compile(lambda x: head.predict(head(x)), fullgraph=True, backend="aot_eager")
    assert torch.equal(step(x), head.predict(head(x)))
    with torch.autocast("cpu", torch.bfloat16):
        loss = head.loss(head(x), y)
    loss.backward()
    torch.testing.assert_close(loss, head.loss(head(x), y), rtol=0.02, atol=0.02)
