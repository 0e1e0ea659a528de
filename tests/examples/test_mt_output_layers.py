"""The translation model with output layers that leave no token out."""

from __future__ import annotations

from pathlib import Path

import pytest

REASON = "the extra `examples` isn't installed"
pytest.importorskip("sentencepiece", reason=REASON)
pytest.importorskip("sacrebleu", reason=REASON)

import pytorch_lightning as pl
import torch
from torch import nn

from mt.model import Translator
from mt.output_layers import OUTPUT_LAYERS, as_computed
from unarg_callback import OutputLayer, verify
from unarg_callback.checkpoints import read_layer

SMALL = {"width": 16, "output_width": 4, "heads": 2, "layers": 1, "feed_forward": 16}


def model(kind: str, seed: int = 1) -> Translator:
    pl.seed_everything(seed, verbose=False)
    built = Translator(30, 200, **SMALL, output_layer=kind)  # type: ignore[arg-type]
    return built.eval()


def logits(translator: Translator) -> torch.Tensor:
    ids = torch.arange(3, 15).reshape(2, 6)
    with torch.no_grad():
        found: torch.Tensor = translator(ids, ids)
    return found


@pytest.mark.parametrize("kind", OUTPUT_LAYERS)
def test_a_file_has_the_layer_as_it_computes(kind: str, tmp_path: Path) -> None:
    translator = model(kind)
    trainer = pl.Trainer(
        logger=False, enable_checkpointing=False, default_root_dir=tmp_path, accelerator="cpu"
    )
    trainer.strategy.connect(translator)
    path = tmp_path / "model.ckpt"
    trainer.save_checkpoint(path)
    layer = read_layer(path, "generator.weight", "generator.bias")
    generator = translator.generator
    assert torch.equal(layer.weight, generator.weight.detach())
    if generator.bias is not None:
        assert layer.bias is not None
        assert torch.equal(layer.bias, generator.bias.detach())
    lost = verify(layer).counts["unargmaxable"]
    assert lost == 0 if kind != "linear" else lost > 10
    # And the model comes back from it.
    again = Translator.load_from_checkpoint(path, map_location="cpu").eval()
    assert torch.equal(logits(again), logits(translator))


def test_the_other_parts_start_alike() -> None:
    plain = model("linear").state_dict()
    for kind in OUTPUT_LAYERS[1:]:
        state = model(kind).state_dict()
        for name in plain.keys() & state.keys():
            assert torch.equal(state[name], plain[name])
        assert torch.equal(
            state.get("generator.parametrizations.weight.original", plain["generator.weight"]),
            plain["target_embedding.weight"],
        )


def test_the_scale_is_about_as_long_as_inputs_are() -> None:
    lengths = model("unit_rows").generator.weight.norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((200,), 2.0))


def test_what_there_is_to_choose_from() -> None:
    with pytest.raises(ValueError, match="expected one of linear, unit_rows"):
        model("voronoi")
    assert as_computed(nn.Linear(2, 3), "x") == {}
    assert OutputLayer(model("linear").generator.weight.detach()).classes == 200
