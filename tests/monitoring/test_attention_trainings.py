"""Trainings whose attention layers are watched: numbers, reasons, and no hook that stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.monitoring.attention_layers import HEADS, WIDTH, N, S, draw, hooks, split, torch_keys
from unarg_callback import Monitor
from unarg_callback.errors import UnargError
from unarg_callback.heads import SparseAttention
from unarg_callback.monitoring.attention_keys import KeyBatch, count_keys
from unarg_callback.monitoring.attention_watch import EXAMPLES


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def encoder() -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2), lambda model, x: model(x)


def decoder() -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]:
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 16, batch_first=True, dropout=0.0)
    layer.multihead_attn = SparseAttention(WIDTH, HEADS)  # type: ignore[assignment]
    causal = nn.Transformer.generate_square_subsequent_mask(S)
    return nn.TransformerDecoder(layer, 2), lambda model, x: model(x, x.flip(1), tgt_mask=causal)


class Net(nn.Module):
    def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.out = inner, nn.Linear(WIDTH, 20)
        self._call = call

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.out(self._call(self.inner, x))
        return z


@pytest.mark.filterwarnings("ignore:.*nested tensor")
class TestTrainings:
    @pytest.mark.parametrize("make", [encoder, pytest.param(decoder, marks=pytest.mark.slow)])
    def test_numbers_are_those_of_the_keys(self, make: Any, time_enough: None) -> None:
        net = Net(*make())
        inputs: dict[str, Tensor] = {}
        kinds = (SparseAttention, nn.MultiheadAttention)
        layers = {name: part for name, part in net.named_modules() if isinstance(part, kinds)}
        for name, part in layers.items():
            part.register_forward_pre_hook(
                lambda module, args, name=name: inputs.update({name: args[1].detach().clone()})
            )
        monitor = Monitor("out", 1, attention=True, on_error="raise", max_overhead=None)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        monitor.start(net)
        assert monitor.records[0].attention == {}
        for step in (1, 2):
            optimizer.zero_grad()
            net(draw(N, S, WIDTH) * step).square().mean().backward()
            optimizer.step()
            (record,) = monitor.step(net, step).records
            assert list(record.attention) == list(layers)
            for name, part in layers.items():
                if isinstance(part, SparseAttention):
                    keys = split(part.key_projection(inputs[name]))
                else:
                    assert isinstance(part, nn.MultiheadAttention)
                    keys = torch_keys(part, inputs[name])
                masked = make is decoder and isinstance(part, nn.MultiheadAttention)
                allowed = torch.ones(1, 1, S, S).tril().bool() if masked else None
                expected = count_keys([KeyBatch(name, keys[:EXAMPLES].detach(), allowed)])
                assert record.attention[name] == expected[name]
                assert record.attention[name]["keys"] == EXAMPLES * HEADS * S
        monitor.finish(net, 2)
        assert hooks(net) == len(layers)

    def test_an_exception_leaves_no_hook(self, time_enough: None) -> None:
        net = Net(*encoder())
        monitor = Monitor("out", 1, attention=True, on_error="raise")
        monitor.start(net)
        assert hooks(net) == 2
        monitor.interrupt()
        assert hooks(net) == 0
        with pytest.raises(UnargError, match="'out' is none"):
            Monitor("out", attention="out").start(net)
        assert hooks(net) == 0

    def test_a_reason_is_told_once(self, time_enough: None) -> None:
        net = nn.ModuleDict(
            {"att": nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True), "out": nn.Linear(2, 5)}
        )
        monitor = Monitor("out", 1, attention=True, on_error="raise")
        monitor.start(net)
        with pytest.warns(UserWarning, match="keys of att aren't checked: it adds keys"):
            monitor.step(net, 1)
        # Another warning would be an error.
        assert [monitor.step(net, step).records[0].attention for step in (2, 3)] == [{}, {}]

    def test_evaluation_is_as_without_while_paused(self) -> None:
        """Hooks keep ``nn.TransformerEncoderLayer`` from its fast path."""
        net, x = Net(*encoder()), draw(N, S, WIDTH)
        monitor = Monitor("out", 1, attention=True, on_error="raise", max_overhead=None)
        with torch.no_grad():
            plain = net.eval()(x)
            monitor.start(net)
            monitor.pause()
            assert hooks(net) == 0
            assert torch.equal(net(x), plain)
            monitor.resume()
        net.train()
        net(x)
        assert monitor.step(net, 1).records[0].attention
        monitor.finish(net, 1)
        monitor.resume()
        assert hooks(net) == 0
