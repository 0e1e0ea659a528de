"""Watch the label sets that a loss is given as targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unarg_callback.activations.recording import is_recorded, is_wrapped
from unarg_callback.errors import UnargError
from unarg_callback.monitoring.seen_sets import SeenSets

_MOST_BYTES = 2**24
"""Sets are kept where they are, to save waiting for the device, until there are so many bytes."""


def as_label_sets(
    target: Tensor, labels: int, scores: torch.Size | None = None, dim: int = -1
) -> Tensor:
    """Label sets of targets in any form that the losses take; no wait for the device.

    Args:
        target: (..., K) label sets or distributions, or class indices (...).
        labels: K.
        scores: shape of the scores that they are for, which tells whole numbers of the one form
            from those of the other; None where it isn't known.
        dim: the dimension of the classes in ``scores``.

    Returns:
        (n, K) bool, or a copy of class indices, (n,) int64, for :func:`of_indices`.

    Raises:
        UnargError: they have another shape.
    """
    whole = not target.is_floating_point() and target.dtype != torch.bool
    target = target.detach()
    if scores is not None and scores[dim] == labels:
        rows = list(scores)
        del rows[dim]
        if whole and list(target.shape) == rows:
            return target.reshape(-1).to(torch.int64, copy=True)
        if target.shape == scores:
            return target.movedim(dim, -1).reshape(-1, labels) > 0
    if target.dim() and target.shape[-1] == labels and not (whole and target.dim() == 1):
        return target.reshape(-1, labels) > 0
    if not whole:
        raise UnargError(
            f"targets are {target.dtype} of shape {tuple(target.shape)}; expected label sets of "
            f"shape (..., {labels}), or class indices"
        )
    return target.reshape(-1).to(torch.int64, copy=True)


def of_indices(index: NDArray[np.int64], labels: int, ignore_index: int) -> NDArray[np.bool_]:
    """(m, K) bool: the set of one label for each class index that counts.

    Args:
        index: (n,).
        labels: K.
        ignore_index: class index of rows that don't count.
    """
    kept = index[(index != ignore_index) & (index >= 0) & (index < labels)]
    sets = np.zeros((len(kept), labels), dtype=np.bool_)
    sets[np.arange(len(kept)), kept] = True
    return sets


class TargetWatch:
    """Keeps the targets that a loss is called with in training, until they are asked for.

    Copies and pickles of the loss have a hook that does nothing.

    Args:
        labels: K.
    """

    def __init__(self, labels: int) -> None:
        self.labels = labels
        self.loss: nn.Module | None = None
        """What is watched, if anything is."""
        self._pending: list[tuple[Tensor, int]] = []
        self._bytes = 0
        self._seen = SeenSets(labels)
        self._handle: RemovableHandle | None = None

    def attach(self, loss: nn.Module) -> None:
        """Watch a loss, called as ``loss(z, target)``, instead of what was watched before.

        Inside of ``torch.compile`` and ``torch.func`` nothing is seen.
        """
        self.detach()
        self.loss = loss
        self._handle = loss.register_forward_pre_hook(_Hook(self), with_kwargs=True)

    def detach(self) -> None:
        """Watch no longer; what was seen stays."""
        self.loss = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def see(
        self,
        target: Tensor,
        ignore_index: int = -100,
        scores: torch.Size | None = None,
        dim: int = -1,
    ) -> None:
        """Take in targets by hand; what the losses themselves would refuse is left out.

        Args:
            target: see :func:`as_label_sets`, as ``scores`` and ``dim``.
            ignore_index: class index of rows that don't count.
            scores: shape of the scores.
            dim: the dimension of the classes in it.
        """
        if is_recorded(target) or is_wrapped(target):
            return
        try:
            sets = as_label_sets(target, self.labels, scores, dim)
        except Exception:  # The loss itself will say what is wrong, and training is not for us.
            return
        self._pending.append((sets, ignore_index))
        self._bytes += sets.nbytes
        if self._bytes > _MOST_BYTES:
            self._fetch()

    @property
    def seen(self) -> SeenSets:
        """What was seen since it was last taken; waits for the device."""
        self._fetch()
        return self._seen

    def take(self) -> SeenSets:
        """The same, and forget it."""
        seen, self._seen = self.seen, SeenSets(self.labels)
        return seen

    def _fetch(self) -> None:
        pending, self._pending, self._bytes = self._pending, [], 0
        rows = []
        for sets, ignore_index in pending:
            found = sets.cpu().numpy()
            indices = found.ndim == 1
            rows.append(of_indices(found, self.labels, ignore_index) if indices else found)
        if rows:
            self._seen.add(np.concatenate(rows))

    def __getstate__(self) -> dict[str, Any]:
        # A hook belongs to a module of this process.
        return {**self.__dict__, "_handle": None, "loss": None}


class _Hook:
    """A forward pre-hook; copies of it, with copies of the loss, do nothing."""

    def __init__(self, owner: TargetWatch | None = None) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.owner is None or not module.training:
            return
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if isinstance(target, Tensor):
            z = args[0] if args else kwargs.get("z")
            self.owner.see(
                target,
                getattr(module, "ignore_index", -100),
                z.shape if isinstance(z, Tensor) else None,
                getattr(module, "dim", -1),
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Hook, ())
