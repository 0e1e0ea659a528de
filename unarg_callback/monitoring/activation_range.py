"""How far the inputs of an output layer reach, as in the paper's Appendix F and Table 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unarg_callback.continuity import DAMAGED
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.geometry.domain import Domain
from unarg_callback.monitoring.activation_report import SHARE, Table9, beyond, exceeds, table9
from unarg_callback.monitoring.activation_totals import ActivationTotals, agreed_dim
from unarg_callback.monitoring.observed_domain import widened

When = Literal["train", "eval", "both"]

_VERSION = 1


class ActivationRange:
    """Watches the input of a layer and keeps how far it reaches, at bounded memory.

    Kept are each dimension's extremes over all tokens, its quantiles over a sample of 256 tokens a
    call, evenly spaced (relative error 1.6%, magnitudes below 2**-16 as 0), and the quantiles of
    each token's lowest and highest activation over all tokens (0.4%). That takes 8.2 kB a dimension
    and 1 MB, on the device of the activations, which never has to wait. Tokens with an activation
    that is NaN or infinite are counted and left out. A layer that activation checkpointing runs
    twice counts twice; padding counts unless :meth:`update` is given a mask.

    Activations, gradients and random numbers stay as they are. Copies and pickles of the
    module have a hook that does nothing, exports have none; ``torch.jit.script`` needs it detached.

    Args:
        when: whether to watch the layer while it trains, in evaluation, or both.

    >>> layer = nn.Linear(2, 3)
    >>> with ActivationRange().attach(layer) as observed:
    ...     _ = layer(torch.tensor([[-1.0, 2.0], [0.0, 4.0]]))
    >>> observed.tokens, observed.low, observed.high
    (2, array([-1.,  2.]), array([0., 4.]))
    """

    def __init__(self, when: When = "train") -> None:
        if when not in ("train", "eval", "both"):
            raise UnargError(f"when is {when!r}; expected 'train', 'eval' or 'both'")
        self.when = when
        self._totals: ActivationTotals | None = None
        self._handle: RemovableHandle | None = None
        self._unread: str | None = None

    def attach(self, module: nn.Module) -> ActivationRange:
        """Watch the first input of a module from now on, until :meth:`detach` or the with's end.

        Of a model that is compiled as a whole, attach before its first call: what is compiled
        already doesn't see a new hook, and :meth:`trouble` says so. Where the layer is an
        ``nn.Linear``, the hook becomes part of the graph, ``fullgraph=True`` included.

        Raises:
            UnargError: it watches a module already.
        """
        if self._handle is not None:
            raise UnargError("this range is attached to a module already; detach it first")
        dim = getattr(module, "in_features", None)
        weight = getattr(module, "weight", None)
        if type(dim) is int and dim > 0 and isinstance(weight, Tensor):
            # Now rather than at the first call, which may be traced and must make nothing new.
            self._prepare(dim, torch.empty(0, dtype=_real(weight.dtype), device=weight.device))
        self._handle = module.register_forward_pre_hook(_Hook(self), with_kwargs=True)
        return self

    def detach(self) -> None:
        """Remove the hook; what was observed stays. No effect if not attached."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def __enter__(self) -> ActivationRange:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Take in activations by hand.

        Args:
            x: (..., d), any floating dtype and device.
            mask: (...) bool, False where a token is padding; None for no padding.

        Raises:
            UnargError: x or the mask has another shape or dtype.
        """
        problem = self._problem(x)
        if problem is not None:
            raise UnargError(f"the activations {problem}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:-1]):
            raise UnargError(
                f"the mask is {mask.dtype} of shape {tuple(mask.shape)}; expected torch.bool of "
                f"shape {tuple(x.shape[:-1])}"
            )
        self._take(x, mask)

    def reset(self) -> None:
        """Forget what was observed; the hook stays."""
        totals = self._totals
        if totals is not None:
            with torch.inference_mode(False):
                self._totals = ActivationTotals(
                    totals.dim, dtype=totals.low.dtype, device=totals.low.device
                )

    @property
    def dim(self) -> int | None:
        """Number of dimensions d, or None before it is known."""
        return None if self._totals is None else self._totals.dim

    @property
    def calls(self) -> int:
        """Calls of the module that were seen; waits for the device."""
        return 0 if self._totals is None else int(self._totals.calls)

    @property
    def tokens(self) -> int:
        """Tokens observed; waits for the device."""
        return 0 if self._totals is None else int(self._totals.tokens)

    @property
    def not_finite(self) -> int:
        """Tokens left out as they had NaN or inf; waits for the device."""
        return 0 if self._totals is None else int(self._totals.not_finite)

    @property
    def low(self) -> NDArray[np.float64]:
        """(d,) float64 lowest activation of each dimension; as :meth:`extremes`."""
        return self.extremes()[0]

    @property
    def high(self) -> NDArray[np.float64]:
        """(d,) float64 highest activation of each dimension; as :meth:`extremes`."""
        return self.extremes()[1]

    def extremes(
        self, ranks: Ranks | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(d,) float64 lowest and highest activation of each dimension, over all ranks.

        Args:
            ranks: a collective where there are several; None for this process alone.

        Raises:
            UnargError: no rank observed anything, or they watch different layers.
        """
        ranks = Ranks() if ranks is None else ranks
        low, high = self._shared(ranks).extremes(ranks)
        if not np.isfinite(low).all():
            raise UnargError(self._nothing())
        return low, high

    def percentiles(self, share: float = SHARE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(d,) float64 ends of the middle ``share`` of each dimension's activations.

        Args:
            share: 0.99 for the percentiles 0.5 and 99.5.

        Raises:
            UnargError: nothing was observed, or the share isn't between 0 and 1.
        """
        totals, (low, high) = self._observed(), self.extremes()
        tail = beyond(share)
        if not int(totals.dimensions.taken):
            return low, high  # Every token of the sample was masked.
        found = (totals.dimensions.quantile(q) for q in (tail, 1 - tail))
        lower, upper = (np.clip(values, low, high) for values in found)
        return lower, upper

    def merge(self, other: ActivationRange) -> None:
        """Take in what another range observed.

        Raises:
            UnargError: of another number of dimensions.
        """
        if other._totals is None:
            return
        with torch.inference_mode(False):
            self._prepare(other._totals.dim, other._totals.low)
            assert self._totals is not None
            self._totals.merge(other._totals)

    def reduce(self, ranks: Ranks) -> ActivationRange:
        """Return what all ranks observed together, on every rank; this range stays as it is.

        A collective.

        Raises:
            UnargError: they watch layers with different numbers of dimensions (on all ranks).
        """
        total = ActivationRange(self.when)
        dims = agreed_dim(ranks, self.dim)
        if dims is not None:
            with torch.inference_mode(False):
                total._totals = self._shared(ranks, dims).reduced(ranks)
        total._unread = self._unread
        return total

    def domain(
        self, margin: float = 1.0, reach: Literal["extremes"] | float = "extremes"
    ) -> Domain:
        """Return the box around what was observed, each dimension widened about its middle.

        A dimension observed within [l, h] gets [l - w, h + w], w = (margin - 1) (h - l) / 2,
        rounded outwards: ``margin`` times as wide. One that never moved stays a point.

        Args:
            margin: from 1.
            reach: "extremes" for all that was observed, or a share such as 0.99 for the middle of
                each dimension's activations (then l and h are those of :meth:`percentiles`).

        Raises:
            UnargError: nothing was observed, or an argument is out of range.
        """
        if isinstance(reach, str) and reach != "extremes":
            raise UnargError(f"reach is {reach!r}; expected 'extremes' or a share such as 0.99")
        low, high = self.extremes() if isinstance(reach, str) else self.percentiles(reach)
        return Domain.box(*widened(low, high, margin))

    def table9(self, model: str = "model") -> Table9:
        """Return the paper's Table 9 for what was observed; ``print`` shows it in Markdown.

        Args:
            model: name of the row.

        Raises:
            UnargError: nothing was observed.
        """
        return table9(self._observed(), model)

    def exceeds(self, domain: Domain) -> str | None:
        """Tell how the activations left a domain, in a sentence; None if they didn't.

        Raises:
            DomainError: the domain has another number of dimensions.
        """
        return exceeds(self._totals, domain) if self._totals is not None and self.tokens else None

    def trouble(self) -> str | None:
        """Tell why nothing was observed, in a sentence; None if something was."""
        return None if self.tokens else self._nothing()

    def state_dict(self) -> dict[str, Any]:
        """Tensors on the CPU and builtins; at most 8.2 kB a dimension and 1 MB, mostly far less."""
        totals = None if self._totals is None else self._totals.state_dict()
        return {"version": _VERSION, "totals": totals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave; a hook stays.

        Raises:
            UnargError: the state is damaged, or of another number of dimensions than is watched;
                what was observed stays.
        """
        try:
            if state["version"] != _VERSION:
                raise UnargError(f"version is {state['version']!r}; expected {_VERSION}")
            saved = state["totals"]
            with torch.inference_mode(False):
                totals = None if saved is None else ActivationTotals.from_state(saved)
        except DAMAGED as cause:
            raise UnargError(
                f"the saved activation range can't be used ({type(cause).__name__}: {cause}); "
                "expected what state_dict() gave"
            ) from cause
        if totals is None:
            self.reset()
            return
        watched = self._totals
        if watched is not None and watched.dim != totals.dim:
            raise UnargError(
                f"the saved activation range has {totals.dim} dimensions; expected {watched.dim}, "
                "the layer's"
            )
        if watched is not None:
            totals.adapt(watched.low)
        self._totals = totals

    def __getstate__(self) -> dict[str, Any]:
        # A copy watches nothing: the hook of the module belongs to this one.
        return {**self.__dict__, "_handle": None}

    def _observed(self) -> ActivationTotals:
        if self._totals is None or not self.tokens:
            raise UnargError(self._nothing())
        return self._totals

    def _shared(self, ranks: Ranks, dim: int | None = None) -> ActivationTotals:
        """The totals of this rank, empty ones where it saw nothing; all have the same d."""
        dim = agreed_dim(ranks, self.dim) if dim is None else dim
        if dim is None:
            raise UnargError(self._nothing())
        return ActivationTotals(dim, device="cpu") if self._totals is None else self._totals

    def _prepare(self, dim: int, like: Tensor) -> None:
        """Make room for activations, where there is none that fits; not while tracing."""
        if self._totals is None:
            dtype = torch.promote_types(like.dtype, torch.float32)
            with torch.inference_mode(False):
                self._totals = ActivationTotals(dim, dtype=dtype, device=like.device)
        elif not self._totals.fits(like):
            with torch.inference_mode(False):
                self._totals.adapt(like)

    def _problem(self, x: object) -> str | None:
        """What is wrong with an input, or None."""
        if not isinstance(x, Tensor):
            return f"are a {type(x).__name__}; expected a tensor"
        if not x.is_floating_point() or x.ndim < 1 or x.layout != torch.strided or x.is_meta:
            return f"are {x.dtype} of shape {tuple(x.shape)}; expected floating (..., d)"
        dim = x.shape[-1] if self._totals is None else self._totals.dim
        if x.shape[-1] != dim or dim == 0:
            return f"have shape {tuple(x.shape)}; expected (..., {dim or 'd'})"
        return None

    def _observe(self, module: nn.Module, x: object) -> None:
        """Take in what a hook saw. Whatever it is, the module's call goes on."""
        if self.when != "both" and module.training != (self.when == "train"):
            return
        if torch.jit.is_tracing() or _exporting():  # type: ignore[attr-defined]
            return
        if not torch.compiler.is_compiling() and _transformed():
            self._unread = "are transformed by torch.func"
            return
        if torch.compiler.is_compiling():
            known = self._totals is not None and isinstance(x, Tensor) and self._totals.fits(x)
            if not known or self._problem(x) is not None:
                return
        else:
            problem = self._problem(x)
            if problem is not None:
                self._unread = problem
                return
        assert isinstance(x, Tensor)
        self._take(x, None)

    def _take(self, x: Tensor, mask: Tensor | None) -> None:
        with torch.no_grad():
            x = x.detach().reshape(-1, x.shape[-1])
            if not torch.compiler.is_compiling():
                self._prepare(x.shape[-1], x)
            assert self._totals is not None
            flat = None if mask is None else mask.detach().reshape(-1).to(x.device)
            self._totals.add(x, flat)

    def _nothing(self) -> str:
        """Why there is nothing."""
        if self.not_finite:
            return f"all {self.not_finite:,} tokens that the layer was given have NaN or inf"
        if self._unread is not None:
            return f"the layer's inputs can't be observed: they {self._unread}"
        if self.calls:
            return f"the layer was called {self.calls:,} times, but with no tokens"
        mode = {"train": " in training", "eval": " in evaluation", "both": ""}[self.when]
        return (
            f"no call of the layer{mode} was seen, so nothing is known of its inputs: either there "
            "was none, or the model uses the weights without calling the layer, as fused losses "
            "do, or it was compiled before the range was attached (attach it before the first call)"
        )


class _Hook:
    """A forward pre-hook; copies of it, with copies of the module, do nothing."""

    def __init__(self, owner: ActivationRange | None = None) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.owner is not None:
            first = inputs[0] if inputs else named.get("input", next(iter(named.values()), None))
            self.owner._observe(module, first)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Hook, ())


def _exporting() -> bool:
    """Whether the module is being exported: what becomes of it shall observe nothing."""
    exporting = getattr(torch.compiler, "is_exporting", None)  # From torch 2.7 on.
    return exporting is not None and exporting()


def _transformed() -> bool:
    """Whether torch.func is at work, under which nothing outside may be changed in place."""
    level = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", None)
    return level is not None and level() is not None


def _real(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a weight, float32 for quantized ones."""
    return dtype if dtype.is_floating_point else torch.float32
