"""Label sets of targets, seen on their way into a loss."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from unarg_callback.heads import MultilabelHead
from unarg_callback.losses import SparsegenHuberLoss, SparsemaxHuberLoss
from unarg_callback.monitoring import target_watch
from unarg_callback.monitoring.target_watch import TargetWatch

SETS = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 1]])
SEEN = {(True, False, True): 2, (False, False, False): 1}


def seen_of(watch: TargetWatch) -> dict[tuple[bool, ...], int]:
    seen = watch.take()
    return {tuple(row): times for row, times in zip(seen.sets.tolist(), seen.times, strict=True)}


def watching(loss: nn.Module, labels: int = 3) -> TargetWatch:
    watch = TargetWatch(labels)
    watch.attach(loss)
    return watch


class TestForms:
    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
    def test_label_sets_of_any_dtype(self, dtype: torch.dtype) -> None:
        loss = SparsemaxHuberLoss()
        watch = watching(loss)
        loss(torch.randn(3, 3), SETS.to(dtype))
        assert seen_of(watch) == SEEN
        loss(torch.randn(1, 3, 3), target=SETS.to(dtype)[None])
        assert seen_of(watch) == SEEN
        loss(z=torch.randn(3), target=SETS.to(dtype)[0])
        assert seen_of(watch) == {(True, False, True): 1}

    def test_distributions_count_by_what_they_hold(self) -> None:
        loss = SparsemaxHuberLoss()
        watch = watching(loss)
        loss(torch.randn(2, 3), torch.tensor([[0.9, 0.0, 0.1], [0.0, 1.0, 0.0]]))
        assert seen_of(watch) == {(True, False, True): 1, (False, True, False): 1}

    @pytest.mark.parametrize("ignored", [-100, 2])
    def test_class_indices(self, ignored: int) -> None:
        loss = SparsemaxHuberLoss(ignore_index=ignored)
        watch = watching(loss)
        loss(torch.randn(4, 3), torch.tensor([0, ignored, 1, 0]))
        assert seen_of(watch) == {(True, False, False): 2, (False, True, False): 1}

    def test_whole_numbers_are_read_as_the_loss_reads_them(self) -> None:
        """Three tokens and three classes: indices of one batch, label sets of another."""
        loss = SparsemaxHuberLoss()
        watch = watching(loss)
        loss(torch.randn(2, 3, 3), torch.tensor([[0, 1, 1], [1, 1, 1]]))
        assert seen_of(watch) == {(True, False, False): 1, (False, True, False): 5}
        loss(torch.randn(2, 3), torch.tensor([[0, 1, 1], [1, 1, 1]]))
        assert seen_of(watch) == {(False, True, True): 1, (True, True, True): 1}
        loss(torch.randn(3, 3), torch.tensor([0, 1, 1]))
        assert seen_of(watch) == {(True, False, False): 1, (False, True, False): 2}

    def test_classes_in_another_dimension(self) -> None:
        loss = SparsemaxHuberLoss(dim=1)
        watch = watching(loss)
        loss(torch.randn(1, 3, 3), SETS.T[None])
        assert seen_of(watch) == SEEN
        loss(torch.randn(1, 3, 3), torch.tensor([[2, 0, 2]]))
        assert seen_of(watch) == {(False, False, True): 2, (True, False, False): 1}

    def test_a_loss_of_torch(self) -> None:
        loss = nn.BCEWithLogitsLoss()
        watch = watching(loss)
        loss(torch.randn(3, 3), SETS.float())
        loss(input=torch.randn(3, 3), target=SETS.float())
        assert seen_of(watch) == {key: 2 * times for key, times in SEEN.items()}

    @pytest.mark.parametrize(
        "target", [torch.rand(3, 4) < 0.5, torch.rand(4), torch.tensor([5, -1]), torch.rand(())]
    )
    def test_what_the_losses_refuse_is_left_out(self, target: Tensor) -> None:
        watch = TargetWatch(3)
        watch.see(target)
        assert seen_of(watch) == {}

    def test_a_copy_is_kept(self) -> None:
        """Data loaders may use the memory of a batch again."""
        watch = TargetWatch(3)
        for target in (SETS.bool(), SETS.clone(), torch.tensor([0, 0])):
            watch.see(target)
            target.zero_()
        expected = {**SEEN, (True, False, False): 2}
        expected[True, False, True] = 4
        expected[False, False, False] = 2
        assert seen_of(watch) == expected


class TestWhen:
    def test_in_training_only_and_until_detached(self) -> None:
        loss = SparsemaxHuberLoss()
        watch = watching(loss)
        loss.eval()
        loss(torch.randn(3, 3), SETS)
        assert seen_of(watch) == {}
        loss.train()
        loss(torch.randn(3, 3), SETS)
        other = SparsemaxHuberLoss()
        watch.attach(other)
        assert not loss._forward_pre_hooks
        loss(torch.randn(3, 3), SETS)
        watch.detach()
        assert not other._forward_pre_hooks
        other(torch.randn(3, 3), SETS)
        assert seen_of(watch) == SEEN
        assert seen_of(watch) == {}

    def test_nothing_is_kept_alive(self) -> None:
        loss = SparsemaxHuberLoss()
        watch, gone = watching(loss), weakref.ref(loss)
        watch.detach()
        del loss
        gc.collect()
        assert gone() is None

    def test_memory_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(target_watch, "_MOST_BYTES", 100)
        watch = TargetWatch(3)
        for _ in range(1000):
            watch.see(SETS.bool())
            assert len(watch._pending) <= 11
        assert len(watch._seen.times) == 2
        assert seen_of(watch) == {key: 1000 * times for key, times in SEEN.items()}

    def test_compiled(self) -> None:
        torch._dynamo.reset()
        head = MultilabelHead(2, 3, nn.Softmax(-1), nn.BCEWithLogitsLoss())
        watch = watching(head.loss)

        @torch.compile(backend="eager", fullgraph=True)
        def step(x: Tensor, y: Tensor) -> Tensor:
            loss: Tensor = head.loss(head(x), y)
            return loss

        step(torch.randn(3, 2), SETS.float()).backward()
        assert seen_of(watch) == {}
        head.loss(head(torch.randn(3, 2)), SETS.float())
        assert seen_of(watch) == SEEN

    def test_torch_func(self) -> None:
        loss = SparsegenHuberLoss(-1.0)
        watch = watching(loss)
        z = torch.randn(3, 3)
        each = torch.func.vmap(torch.func.grad(lambda one, y: loss(one, y)))(z, SETS.float())
        torch.func.vmap(loss)(z, SETS.float())
        torch.func.jacrev(loss)(z, SETS.float())
        assert each.shape == (3, 3)
        found = seen_of(watch)
        assert set(found) <= set(SEEN)

    def test_copies_of_the_loss_are_not_watched(self) -> None:
        head = MultilabelHead.named("sparsemax+huber", in_features=2, num_labels=3)
        watch = watching(head.loss)
        for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
            other.loss(other(torch.randn(3, 2)), SETS)
        assert seen_of(watch) == {}
        watch.see(SETS)
        for same in (copy.deepcopy(watch), pickle.loads(pickle.dumps(watch))):
            assert seen_of(same) == SEEN
            assert same.loss is None


def test_a_target_that_breaks_while_it_is_read_is_not_the_watchs() -> None:
    class Broken(Tensor):
        @property
        def shape(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no shape")

    watch = TargetWatch(3)
    watch.see(torch.ones(2, 3).as_subclass(Broken))
    assert seen_of(watch) == {}


def test_many_rows_are_counted_right() -> None:
    watch, rows = TargetWatch(9), np.random.default_rng(0).random((5000, 9)) < 0.3
    for part in np.split(rows, 50):
        watch.see(torch.from_numpy(part))
    expected = {tuple(row): 0 for row in rows.tolist()}
    for row in rows.tolist():
        expected[tuple(row)] += 1
    assert seen_of(watch) == expected
