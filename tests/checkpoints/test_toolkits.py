"""Checkpoints of fairseq and OpenNMT-py, and Lightning's with more than one copy of the weights."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unarg_callback import CheckpointError
from unarg_callback.checkpoints import locate_layer, read_layer

W, OTHER, SOURCE = torch.randn(10, 4), torch.randn(10, 4), torch.randn(12, 4)
B = torch.randn(10)


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fairseq(path: Path, model: dict[str, Tensor], **settings: Any) -> Path:
    """As ``fairseq.checkpoint_utils.save_state`` writes it."""
    content: dict[str, Any] = {
        "args": None,
        "cfg": {"_name": None, "model": {"_name": "transformer"}},
        "model": {
            "encoder.embed_tokens.weight": SOURCE,
            "encoder.version": torch.tensor([3.0]),
            "decoder.layers.0.fc1.weight": torch.randn(8, 4),
            "decoder.layers.0.fc1.bias": torch.randn(8),
            **model,
        },
        "criterion": {},
        "optimizer_history": [{"criterion_name": "X", "num_updates": 3}],
        "task_state": {},
        "extra_state": {"best": 4.5, "train_iterator": {"epoch": 2}},
        "last_optimizer_state": {"state": {0: {"exp_avg": W}}},
    }
    torch.save({**content, **settings}, path)
    return path


EMBEDDING = {"decoder.embed_tokens.weight": OTHER}
FAIRSEQ: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {
    "projection": ({"decoder.output_projection.weight": W, **EMBEDDING}, {}),
    "older": ({"decoder.embed_out": W, **EMBEDDING}, {"args": argparse.Namespace(arch="x")}),
    "lstm": ({"decoder.fc_out.weight": W, "decoder.fc_out.bias": B, **EMBEDDING}, {}),
    "shared": (
        {"decoder.embed_tokens.weight": W},
        {"args": argparse.Namespace(share_decoder_input_output_embed=True), "cfg": None},
    ),
    "shared_all": (
        {"decoder.embed_tokens.weight": W},
        {"cfg": {"model": {"share_all_embeddings": True}}},
    ),
    "options_in_settings": (
        {"decoder.embed_tokens.weight": W},
        {"cfg": {"model": argparse.Namespace(share_all_embeddings=True)}},
    ),
    "masked": ({"encoder.lm_head.weight": W, "encoder.lm_head.bias": B}, {}),
}


@pytest.mark.parametrize("case", FAIRSEQ)
def test_fairseq(tmp_path: Path, case: str) -> None:
    model, settings = FAIRSEQ[case]
    located = locate_layer(fairseq(tmp_path / "checkpoint_best.pt", model, **settings))
    layer = located.load()
    assert torch.equal(layer.weight, W)
    assert (layer.bias is not None) == (case in {"lstm", "masked"})
    assert layer.excluded == (1,)
    assert "(padding token: fairseq never puts out <pad>, id 1): 1" in located.describe()
    assert ("tied to the embedding" in located.describe()) == (case in SHARED)


SHARED = {"shared", "shared_all", "options_in_settings"}


def test_fairseq_that_shares_nothing(tmp_path: Path) -> None:
    message = refusal(fairseq(tmp_path / "a.pt", EMBEDDING))
    assert "don't say that it shares" in message
    assert "decoder.embed_tokens.weight (10, 4)" in message
    assert read_layer(tmp_path / "a.pt", weight="decoder.embed_tokens.weight").classes == 10


def test_fairseq_with_two_heads(tmp_path: Path) -> None:
    heads = {"decoder.output_projection.weight": W, "encoder.lm_head.weight": OTHER}
    assert "2 layers that could be meant" in refusal(fairseq(tmp_path / "a.pt", heads))


def test_fairseq_adaptive_softmax(tmp_path: Path) -> None:
    model = {"decoder.adaptive_softmax.head.weight": W, **EMBEDDING}
    assert "adaptive softmax" in refusal(fairseq(tmp_path / "a.pt", model))


class Settings:
    """Stands for an object of the toolkit's own, such as omegaconf's."""


@pytest.mark.parametrize("key", ["args", "cfg", "extra_state"])
def test_fairseq_with_objects_says_how_to_convert(tmp_path: Path, key: str) -> None:
    path = fairseq(tmp_path / "a.pt", FAIRSEQ["projection"][0], **{key: Settings()})
    message = refusal(path)
    assert "Settings" in message
    assert "never loaded" in message
    assert "if you trust it, with the program that wrote it" in message


def test_options_run_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    path = fairseq(tmp_path / "a.pt", {}, args=argparse.Namespace(arch=Evil()))
    assert "never loaded" in refusal(path)
    (tmp_path / "b.pt").write_bytes(pickle.dumps(argparse.Namespace(arch=Evil()), protocol=2))
    assert "never loaded" in refusal(tmp_path / "b.pt")
    assert not canary.exists()


def opennmt(path: Path, generator: Any, **settings: Any) -> Path:
    """As ``onmt.models.model_saver`` writes it."""
    content = {
        "model": {
            "encoder.embeddings.word_lut.weight": SOURCE,
            "decoder.embeddings.word_lut.weight": OTHER,
            "decoder.transformer_layers.0.feed_forward.w_1.weight": torch.randn(8, 4),
            "decoder.transformer_layers.0.feed_forward.w_1.bias": torch.randn(8),
        },
        "generator": generator,
        "vocab": None,
        "opt": argparse.Namespace(rnn_size=4, share_decoder_embeddings=False),
        "optim": {"training_step": 3, "optimizer": {"state": {0: {"exp_avg": W}}}},
    }
    torch.save({**content, **settings}, path)
    return path


@pytest.mark.parametrize("stem", ["", "0."])
def test_opennmt(tmp_path: Path, stem: str) -> None:
    module = nn.Linear(4, 10)
    generator = {stem + name: value for name, value in module.state_dict().items()}
    located = locate_layer(opennmt(tmp_path / "model_step_3.pt", generator))
    layer = located.load()
    assert torch.equal(layer.weight, module.weight)
    assert layer.bias is not None
    assert torch.equal(layer.bias, module.bias)
    assert layer.names is None
    assert "(OpenNMT-py)" in located.describe()


def test_opennmt_vocabulary(tmp_path: Path) -> None:
    words = ["<unk>", "<blank>", "<s>", "</s>", "der", "die", "das", "▁und"]
    generator = {"weight": W, "bias": B}
    path = opennmt(tmp_path / "a.pt", generator, vocab={"src": ["x"], "tgt": words})
    layer = read_layer(path)
    assert layer.names == (*words, "8", "9")
    assert layer.excluded == (1, 8, 9)
    too_many = {"tgt": [str(index) for index in range(11)]}
    located = locate_layer(opennmt(tmp_path / "b.pt", generator, vocab=too_many))
    assert located.names is None
    assert "11 words for 10 rows" in located.describe()


def test_opennmt_that_copies_words(tmp_path: Path) -> None:
    generator = {"linear.weight": W, "linear.bias": B, "linear_copy.weight": torch.randn(1, 4)}
    assert "mixture" in refusal(opennmt(tmp_path / "a.pt", generator))


@pytest.mark.parametrize("generator", [None, {}, {"0.weight": W, "weight": OTHER}])
def test_opennmt_without_one_generator(tmp_path: Path, generator: Any) -> None:
    message = refusal(opennmt(tmp_path / "a.pt", generator))
    assert "no generator with one weight" in message or "2 layers" in message
    assert "(10, 4)" in message


@pytest.mark.parametrize("kept", [0.3, 0.95])
def test_truncated(tmp_path: Path, kept: float) -> None:
    for path in (
        fairseq(tmp_path / "a.pt", FAIRSEQ["projection"][0]),
        opennmt(tmp_path / "b.pt", {"weight": W, "bias": B}),
    ):
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content))])
        assert "truncated" in refusal(path)


def trained(folder: Path, *callbacks: Any) -> tuple[Path, Any]:
    """A checkpoint of Lightning's after two epochs, and the module."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.Linear(4, 10)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            loss: Tensor = self.generator(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.5)

    class Keep(lightning.Callback):  # type: ignore[name-defined]
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            trainer.save_checkpoint(folder / "last.ckpt")

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, Keep()],
        default_root_dir=folder,
    )
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
    return folder / "last.ckpt", module


@pytest.mark.filterwarnings("ignore")
def test_lightning_averages(tmp_path: Path) -> None:
    callbacks = pytest.importorskip("pytorch_lightning.callbacks")
    path, _ = trained(tmp_path, callbacks.EMAWeightAveraging(decay=0.5))
    content = torch.load(path, weights_only=True)
    located = locate_layer(path)
    assert torch.equal(located.load().weight, content["state_dict"]["generator.weight"])
    text = located.describe()
    assert "(the raw ones; those in use are Lightning's averages)" in text
    assert "--weight current_model_state.NAME" in text
    raw = read_layer(path, weight="current_model_state.generator.weight")
    assert torch.equal(raw.weight, content["current_model_state"]["generator.weight"])
    assert not torch.equal(raw.weight, located.load().weight)


@pytest.mark.filterwarnings("ignore")
def test_lightning_stochastic_averages(tmp_path: Path) -> None:
    callbacks = pytest.importorskip("pytorch_lightning.callbacks")
    swa = callbacks.StochasticWeightAveraging(swa_lrs=0.1, swa_epoch_start=1)
    path, _ = trained(tmp_path, swa)
    content = torch.load(path, weights_only=True)
    located = locate_layer(path)
    assert torch.equal(located.load().weight, content["state_dict"]["generator.weight"])
    inner = "callbacks.StochasticWeightAveraging.average_model_state"
    assert f"another copy of the weights (averages): --weight {inner}.NAME" in located.describe()
    averaged = read_layer(path, weight=f"{inner}.generator.weight")
    state = content["callbacks"]["StochasticWeightAveraging"]["average_model_state"]
    assert torch.equal(averaged.weight, state["generator.weight"])
    assert averaged.bias is not None


def test_averages_inside_of_the_module_are_ambiguous(tmp_path: Path) -> None:
    module = nn.Module()
    module.generator = nn.Linear(4, 10)
    module.ema = torch.optim.swa_utils.AveragedModel(module.generator)
    torch.save({"state_dict": module.state_dict()}, tmp_path / "same.ckpt")
    assert "ema.module.weight" in locate_layer(tmp_path / "same.ckpt").describe()
    with torch.no_grad():
        module.generator.weight += 1
    torch.save({"state_dict": module.state_dict()}, tmp_path / "other.ckpt")
    message = refusal(tmp_path / "other.ckpt")
    assert "2 layers that could be meant" in message
    assert "ema.module.weight (10, 4)" in message
