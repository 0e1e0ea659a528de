"""The monitor in a transformers Trainer, on tiny models made from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

from tests.tiny_training import scalar_steps
from unarg_callback import verify
from unarg_callback.dashboards.json_lines import read_json_lines
from unarg_callback.errors import LayerError
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.hf import (
    STATE_FILE,
    UnargmaxabilityTrainerCallback,
    masked_ids,
    output_embeddings_path,
    token_names,
)

pytestmark = pytest.mark.usefixtures("time_enough")

VOCABULARY, WIDTH = 40, 4


class Tokenizer:
    """Ids with a gap, and fewer than the model has rows."""

    def get_vocab(self) -> dict[str, int]:
        return {f"t{index}": index for index in range(VOCABULARY - 3) if index != 5}


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, decoder_only: bool) -> None:
        self.decoder_only = decoder_only

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(index)
        ids = torch.randint(1, VOCABULARY - 3, (6,), generator=draw)
        return {"input_ids": ids, "labels": ids.clone()}


def gpt2() -> Any:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=8,
            n_embd=WIDTH,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def marian() -> Any:
    torch.manual_seed(0)
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=VOCABULARY,
            d_model=WIDTH,
            max_position_embeddings=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
        )
    )


def train(folder: Path, model: Any, *callbacks: Any, resume: Any = None, **options: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        **{
            "max_steps": 12,
            "per_device_train_batch_size": 4,
            "learning_rate": 0.05,
            "report_to": [],
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "use_cpu": True,
            "seed": 3,
            **options,
        },
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=Sentences(decoder_only=True),
        callbacks=list(callbacks),
    )
    trainer.callback_handler.processing_class = Tokenizer()
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def steps_of(callback: UnargmaxabilityTrainerCallback) -> list[int]:
    return [record.step for record in callback.monitor.records]


@pytest.mark.parametrize("make", [gpt2, marian])
def test_the_last_report_is_that_of_the_final_weights(tmp_path: Path, make: Any) -> None:
    model, callback = make(), UnargmaxabilityTrainerCallback(5)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(0))
    train(tmp_path, model, callback)
    assert steps_of(callback) == [0, 5, 10, 12]
    report = callback.monitor.last_report
    assert report is not None
    assert report.counts["excluded"] == 4
    assert report.names is not None
    assert (report.names[3], report.names[5]) == ("t3", "<unused 5>")
    bias = getattr(model, "final_logits_bias", None)
    layer = OutputLayer(
        model.lm_head.weight, bias, excluded=[5, *range(VOCABULARY - 3, VOCABULARY)]
    )
    assert report.status.tolist() == verify(layer).status.tolist()
    assert (bias is not None) == (report.evidence is not None and make is marian)


def test_lines_and_charts(tmp_path: Path) -> None:
    train(tmp_path, gpt2(), UnargmaxabilityTrainerCallback(6), report_to=["tensorboard"])
    records = read_json_lines(tmp_path / "unargmaxability.jsonl")
    assert [record["step"] for record in records] == [0, 6, 12]
    folder = str(tmp_path / "runs" / "unargmaxability")
    assert scalar_steps(folder, "unarg/lm_head/provable") == [0, 6, 12]


def test_the_same_losses_with_and_without(tmp_path: Path) -> None:
    losses = []
    for callbacks in ([], [UnargmaxabilityTrainerCallback(1, max_overhead=None)]):
        model = gpt2()
        trainer = train(tmp_path, model, *callbacks, logging_strategy="steps", logging_steps=1)
        losses.append(
            (
                [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
                model.lm_head.weight.tolist(),
            )
        )
    assert losses[0] == losses[1]


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    callback = UnargmaxabilityTrainerCallback(2)
    train(tmp_path, gpt2(), callback, gradient_accumulation_steps=3, max_steps=6)
    assert steps_of(callback) == [0, 2, 4, 6]


def test_epochs(tmp_path: Path) -> None:
    callback = UnargmaxabilityTrainerCallback(0, every_n_epochs=1, at_start=False)
    train(tmp_path, gpt2(), callback, num_train_epochs=3, max_steps=-1)
    assert steps_of(callback) == [6, 12, 18]


@pytest.mark.parametrize("moved", [False, True])
def test_resume(tmp_path: Path, moved: bool) -> None:
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 4}
    whole = UnargmaxabilityTrainerCallback(3)
    train(tmp_path / "whole", gpt2(), whole, **saving)
    state = torch.load(tmp_path / "whole" / "checkpoint-4" / STATE_FILE, weights_only=True)
    assert state["last_step"] == 3
    resumed = UnargmaxabilityTrainerCallback(3)
    folder = str(tmp_path / "whole" / "checkpoint-4")
    elsewhere = {**saving, "resume_from_checkpoint": folder} if moved else saving
    train(tmp_path / ("again" if moved else "whole"), gpt2(), resumed, resume=folder, **elsewhere)
    assert steps_of(resumed) == steps_of(whole)
    assert all(record.warm for record in resumed.monitor.records[1:])
    for name in ("provable_since", "potential_since"):
        assert getattr(resumed.monitor.heads["lm_head"], name) == getattr(
            whole.monitor.heads["lm_head"], name
        )


@pytest.mark.parametrize("damage", ["missing", "torn", "pickle"])
def test_a_checkpoint_without_a_usable_state(tmp_path: Path, damage: str) -> None:
    saving = {"save_strategy": "steps", "save_steps": 4}
    train(tmp_path, gpt2(), UnargmaxabilityTrainerCallback(3), **saving)
    file = tmp_path / "checkpoint-4" / STATE_FILE
    if damage == "missing":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:100])
    else:
        file.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    resumed = UnargmaxabilityTrainerCallback(3)
    with pytest.warns(UserWarning, match="the monitor starts from nothing"):
        train(tmp_path, gpt2(), resumed, resume=str(file.parent), **saving)
    assert steps_of(resumed) == [4, 6, 9, 12]


def test_stop(tmp_path: Path) -> None:
    callback = UnargmaxabilityTrainerCallback(2, on_event=lambda event: "stop")
    trainer = train(tmp_path, gpt2(), callback, max_steps=60, learning_rate=0.5)
    assert trainer.state.global_step < 60


def test_layers_by_other_means(tmp_path: Path) -> None:
    callback = UnargmaxabilityTrainerCallback(
        0, layer=lambda model: model.transformer.wte.weight, name="tied", labels=None, exclude="1"
    )
    train(tmp_path, gpt2(), callback, max_steps=1)
    report = callback.monitor.last_report
    assert report is not None
    assert list(callback.monitor.heads) == ["tied"]
    assert report.counts["excluded"] == 5


def test_no_output_embeddings(tmp_path: Path) -> None:
    model = transformers.GPT2Model(gpt2().config)
    with pytest.raises(LayerError, match="GPT2Model has no output embeddings; name the output"):
        output_embeddings_path(model)


def test_names_and_masks() -> None:
    names = token_names(Tokenizer(), 6)
    assert names == ["t0", "t1", "t2", "t3", "t4", None]
    model = marian()
    model.generation_config.bad_words_ids = [[7], [1, 2]]
    model.generation_config.suppress_tokens = [9, -1]
    assert masked_ids(model) == {7, 9}
    assert output_embeddings_path(model) == "lm_head"
