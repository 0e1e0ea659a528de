"""The hook in real modules: compiled, under autocast, in training runs, copied, exported."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch._dynamo
from torch import Tensor, nn

from tests.tiny_training import CLASSES, DIM, FEATURES, Classifier, batches, seeded, trainer
from unarg_callback.distributed.ranks import Ranks
from unarg_callback.errors import UnargError
from unarg_callback.monitoring.activation_range import ActivationRange


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 30))


def inputs(tokens: int) -> Tensor:
    return torch.randn(tokens, 5, generator=torch.Generator().manual_seed(tokens))


class TestAttach:
    def test_until_detached(self) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed:
            for tokens in (3, 4):
                net(inputs(tokens))
        assert not net[1]._forward_pre_hooks
        net(inputs(5))
        assert (observed.calls, observed.tokens, observed.trouble()) == (2, 7, None)
        expected = net[0](torch.cat([inputs(3), inputs(4)])).detach()
        assert observed.high.tolist() == pytest.approx(expected.amax(0).tolist(), rel=1e-6)
        observed.detach()
        observed.attach(net[1])
        net(inputs(5))
        assert observed.tokens == 12
        with pytest.raises(UnargError, match="detach it first"):
            observed.attach(net[0])
        observed.reset()
        net(inputs(2))
        assert observed.tokens == 2

    @pytest.mark.parametrize(("when", "tokens"), [("train", 3), ("eval", 4), ("both", 7)])
    def test_modes(self, when: Any, tokens: int) -> None:
        net = model()
        with ActivationRange(when).attach(net[1]) as observed:
            net(inputs(3))
            net.eval()
            with torch.no_grad():
                net(inputs(4))
        assert observed.tokens == tokens

    def test_by_keyword_and_in_any_shape(self) -> None:
        layer = nn.Linear(8, 30)
        with ActivationRange().attach(layer) as observed:
            layer(input=torch.ones(2, 3, 4, 8))
            layer(torch.ones(8))
        assert observed.tokens == 25

    def test_inference_mode_comes_first(self) -> None:
        class Head(nn.Module):
            def forward(self, hidden: Tensor) -> Tensor:
                return hidden.sum(-1)

        head = Head()  # Its number of features is known only from its input.
        with ActivationRange("both").attach(head) as observed:
            with torch.inference_mode():
                head(torch.ones(2, 8))
                observed.merge(observed.reduce(Ranks()))
                observed.load_state_dict(observed.state_dict())
                observed.reset()
                head(torch.ones(2, 8))
            head(hidden=torch.ones(3, 8).requires_grad_())
        assert observed.tokens == 5

    def test_gradients_and_random_numbers_are_untouched(self) -> None:
        plain, watched = model(), model()
        state = torch.get_rng_state()
        with ActivationRange().attach(watched[1]):
            results = [net(inputs(9)).logsumexp(-1).mean() for net in (plain, watched)]
        for result in results:
            result.backward()
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(*results)
        for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert torch.equal(one.grad, other.grad)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_autocast(self, dtype: torch.dtype) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed, torch.autocast("cpu", dtype):
            hidden = net[0](inputs(300))
            net(inputs(300)).float().sum().backward()
        assert hidden.dtype == dtype
        assert observed.high.tolist() == hidden.double().amax(0).tolist()

    def test_a_module_that_moves_to_float64(self) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed:
            net.double()
            hidden = net[0](inputs(3).double())
            net(inputs(3).double())
        assert observed.high.tolist() == hidden.amax(0).tolist()


class TestTrouble:
    def test_what_it_cannot_read_does_no_harm(self) -> None:
        embedding = nn.Embedding(10, 4)
        with ActivationRange().attach(embedding) as observed:
            assert embedding(torch.arange(3)).shape == (3, 4)
        assert "torch.int64" in (observed.trouble() or "")
        with pytest.raises(UnargError, match="can't be observed"):
            observed.domain()

    def test_an_error_in_forward_leaves_it_usable(self) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed:
            for bad in (torch.ones(3, 7), torch.ones(3, 8, dtype=torch.float64)):
                with pytest.raises(RuntimeError):
                    net[1](bad)
            net(inputs(6))
        assert observed.tokens >= 6

    def test_weights_that_are_used_without_a_call(self) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed:
            net[0](inputs(3)) @ net[1].weight.T
        assert "uses the weights without calling" in (observed.trouble() or "")
        with pytest.raises(UnargError, match="no call of the layer in training was seen"):
            observed.table9()

    def test_nothing_but_nan(self) -> None:
        layer = nn.Linear(8, 30)
        with ActivationRange().attach(layer) as observed:
            layer(torch.full((4, 8), float("nan")))
        assert observed.trouble() == "all 4 tokens that the layer was given have NaN or inf"


class TestCopies:
    def test_copies_of_a_watched_model_are_not_watched(self) -> None:
        net = model()
        with ActivationRange().attach(net[1]) as observed:
            for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
                assert other(inputs(3)).shape == (3, 30)
                hooks: Any = other[1]._forward_pre_hooks.values()
                assert [hook.owner for hook in hooks] == [None]
            assert observed.calls == 0
            net(inputs(3))
            assert observed.calls == 1

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
    def test_exports_observe_nothing(self) -> None:
        net = model()
        with ActivationRange("both").attach(net[1]) as observed:
            exported = torch.export.export(net, (inputs(3),)).module()
            traced = torch.jit.trace(net, inputs(3), check_trace=False)
            for other in (exported, traced):
                other(inputs(3))
        assert observed.calls == 0


KINDS = ("whole", "fullgraph", "in place", "layer", "layer in place")


def compiled(net: nn.Sequential, kind: str, backend: str = "eager") -> Any:
    if kind == "in place":
        net.compile(backend=backend)
    elif kind == "layer":
        net[1] = torch.compile(net[1], backend=backend)  # type: ignore[assignment]
    elif kind == "layer in place":
        net[1].compile(backend=backend)
    else:
        return torch.compile(net, backend=backend, fullgraph=kind == "fullgraph")
    return net


class TestCompiled:
    @pytest.fixture(autouse=True)
    def _fresh(self) -> Any:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("kind", KINDS)
    def test_attached_before_the_first_call(self, kind: str) -> None:
        net = model()
        run = compiled(net, kind)
        observed = ActivationRange().attach(net[1])
        plain, same = model(), ActivationRange()
        same.attach(plain[1])
        for tokens in (300, 300, 7, 8):  # As many as are sampled, and fewer; static and not.
            run(inputs(tokens)).sum().backward()
            plain(inputs(tokens))
        observed.detach()
        run(inputs(300))
        assert observed.calls == 4
        assert str(observed.table9()) == str(same.table9())
        assert observed.high.tolist() == pytest.approx(same.high.tolist(), rel=1e-6)

    @pytest.mark.parametrize("kind", KINDS)
    def test_attached_later(self, kind: str) -> None:
        net = model()
        run = compiled(net, kind)
        run(inputs(6))
        observed = ActivationRange().attach(net[1])
        run(inputs(6)).sum().backward()
        # It sees the call or says that it didn't.
        trouble = observed.trouble()
        assert observed.calls == 1 or "before the range was attached" in (trouble or "")

    def test_mode_switches(self) -> None:
        net = model()
        run = compiled(net, "fullgraph")
        observed = ActivationRange().attach(net[1])
        for training in (True, False, True):
            net.train(training)
            run(inputs(6))
        assert observed.calls == 2

    @pytest.mark.slow
    def test_inductor(self) -> None:
        net = model()
        run = compiled(net, "fullgraph", "inductor")
        observed = ActivationRange().attach(net[1])
        for tokens in (300, 7):
            run(inputs(tokens)).sum().backward()
        assert observed.calls == 2
        expected = model()[0](torch.cat([inputs(300), inputs(7)])).detach()
        assert observed.high.tolist() == pytest.approx(expected.amax(0).tolist(), rel=1e-5)


class Tied(Classifier):
    """Output weights that are those of an embedding, too; the layer is compiled."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(DIM, CLASSES)
        self.embedding = nn.Embedding(CLASSES, DIM)
        self.embedding.weight = layer.weight
        self.generator = torch.compile(layer, backend="eager")  # type: ignore[assignment]

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return super().loss(batch) + self.embedding(batch[1]).square().mean()


class Watch(pl.Callback):
    """Attaches a range as a monitor does, and keeps what the layer was given."""

    def __init__(self, observed: ActivationRange) -> None:
        self.observed = observed
        self.given: list[Tensor] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.generator.register_forward_pre_hook(self._keep)
        self.observed.attach(pl_module.generator)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.observed.detach()

    def _keep(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if module.training:
            self.given.append(args[0].detach().clone())


class TestTraining:
    @pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
    def test_losses_are_the_same_bit_for_bit(self, tmp_path: Path, precision: Any) -> None:
        torch._dynamo.reset()
        options = {"precision": precision, "accumulate_grad_batches": 2}
        plain = seeded(Tied)
        trainer(tmp_path, **options).fit(plain, batches(), batches(2))
        watch, watched = Watch(ActivationRange()), seeded(Tied)
        trainer(tmp_path, watch, **options).fit(watched, batches(), batches(2))
        assert watched.losses == plain.losses
        given = torch.cat(watch.given)
        assert watch.observed.calls == len(watch.given) == 14
        assert watch.observed.tokens == len(given)
        assert watch.observed.high.tolist() == given.double().amax(0).tolist()
        assert given.dtype == (torch.bfloat16 if precision == "bf16-mixed" else torch.float32)

    def test_a_validation_epoch(self, tmp_path: Path) -> None:
        watch, module = Watch(ActivationRange("eval")), seeded(Classifier)
        options: dict[str, Any] = {"num_sanity_val_steps": 0, "max_epochs": 1}
        trainer(tmp_path, watch, **options).fit(module, batches(), batches(3))
        assert (watch.observed.calls, watch.observed.tokens) == (3, 12)
        assert watch.observed.dim == DIM != FEATURES
