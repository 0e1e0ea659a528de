"""What users have reported about the vocabularies of language models, in real trainings."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

from tests.test_hf import VOCABULARY, WIDTH, Tokenizer, gpt2, marian, steps_of, train
from tests.tiny_training import scalar_steps
from unarg_callback import verify
from unarg_callback.dashboards.json_lines import read_json_lines
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.hf import STATE_FILE, UnargmaxabilityTrainerCallback
from unarg_callback.snapshots.snapshot import find_layer, take_snapshot

pytestmark = pytest.mark.usefixtures("time_enough")

PLAIN: dict[str, Any] = {"max_steps": 8, "optim": "sgd", "learning_rate": 1.0}
"""The fused Adam of transformers' default writes beyond its moments after a resize."""

UNUSED = {5, *range(VOCABULARY - 3, VOCABULARY)}
"""Ids that stand for no token of the tokenizer."""


def bart() -> Any:
    torch.manual_seed(0)
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
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
            bos_token_id=1,
            eos_token_id=1,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
        )
    )


def untied() -> Any:
    model = gpt2()
    config = model.config
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


class At(transformers.TrainerCallback):  # type: ignore[name-defined]
    """Does something to the model after one step, before the monitor sees it."""

    def __init__(self, step: int, change: Any) -> None:
        self.step, self.change = step, change

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == self.step:
            self.change(model)


def report_of(callback: UnargmaxabilityTrainerCallback) -> Any:
    report = callback.monitor.last_report
    assert report is not None
    assert callback.monitor.retired is None
    return report


def fresh(model: Any, excluded: set[int]) -> list[int]:
    """Verdicts of a check from nothing."""
    layer = take_snapshot(find_layer(model, "lm_head"), excluded=sorted(excluded))
    found: list[int] = verify(layer).status.tolist()
    return found


class Growing(Tokenizer):
    """Tokens may be added."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_vocab(self) -> dict[str, int]:
        return {f"t{index}": index for index in range(self.size)}


class TestResized:
    """https://github.com/huggingface/transformers/pull/33325: new rows are drawn from the mean of
    the old ones, and C changes in the middle of a training.
    """

    @pytest.mark.parametrize("make", [gpt2, untied, marian, bart])
    @pytest.mark.parametrize("mean", [True, False])
    def test_rows_that_are_added(self, tmp_path: Path, make: Any, mean: bool) -> None:
        tokenizer = Growing(VOCABULARY)

        def grow(model: Any) -> None:
            tokenizer.size += 6
            model.resize_token_embeddings(tokenizer.size, mean_resizing=mean)

        model = make()
        callback = UnargmaxabilityTrainerCallback(2, on_error="raise", max_overhead=None)
        train_with(tokenizer, tmp_path, model, At(5, grow), callback, **PLAIN)
        assert steps_of(callback) == [0, 2, 4, 6, 8]
        classes = [record.classes for record in callback.monitor.records]
        assert classes == [40, 40, 40, 46, 46]
        report = report_of(callback)
        assert report.classes == VOCABULARY + 6
        assert report.status.tolist() == fresh(model, set())
        # Of the classes that were there it is still known since when they are out of reach.
        since = callback.monitor.heads["lm_head"].potential_since
        assert min(since.values(), default=0) in {0, 2, 4, 6}
        assert len(read_json_lines(tmp_path)) == 5

    def test_rows_that_are_added_to_fill_up(self, tmp_path: Path) -> None:
        """``pad_to_multiple_of``: https://github.com/vllm-project/vllm/pull/35937. Rows that stand
        for no token beat nobody, also those that came later.
        """

        tokenizer = Growing(VOCABULARY - 3)

        def grow(model: Any) -> None:
            tokenizer.size = VOCABULARY + 2
            model.resize_token_embeddings(tokenizer.size, pad_to_multiple_of=16)

        model = gpt2()
        callback = UnargmaxabilityTrainerCallback(2, on_error="raise", max_overhead=None)
        train_with(tokenizer, tmp_path, model, At(5, grow), callback, **PLAIN)
        report = report_of(callback)
        assert report.classes == 48
        unused = set(range(VOCABULARY + 2, 48))
        assert report.counts["excluded"] == len(unused)
        assert report.status.tolist() == fresh(model, unused)
        assert report.name(VOCABULARY) == f"t{VOCABULARY}"

    def test_inputs_are_observed_after_the_head_was_replaced(self, tmp_path: Path) -> None:
        """https://github.com/huggingface/transformers/pull/45079: the head is another module."""

        def replace(model: Any) -> None:
            model.set_output_embeddings(torch.nn.Linear(WIDTH, VOCABULARY, bias=False))

        model = untied()
        callback = UnargmaxabilityTrainerCallback(2, observe=True, on_error="raise")
        train(tmp_path, model, At(5, replace), callback, **PLAIN)
        report = report_of(callback)
        assert report.status.tolist() == fresh(model, UNUSED)
        # Four sentences of six tokens in each of eight batches; one came before it was noticed.
        assert callback.monitor.activation_ranges["lm_head"].tokens >= 7 * 4 * 6


def train_with(tokenizer: Any, folder: Path, model: Any, *callbacks: Any, **options: Any) -> Any:
    """Train with another tokenizer than :func:`train` has."""

    fit = transformers.Trainer.train

    def begin(self: Any, *arguments: Any, **more: Any) -> Any:
        self.callback_handler.processing_class = tokenizer
        return fit(self, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.Trainer, "train", begin)
        return train(folder, model, *callbacks, **options)


class TestRowsOfNoToken:
    def test_new_tokens_take_rows_that_were_padding(self, tmp_path: Path) -> None:
        """https://github.com/hiyouga/LlamaFactory/pull/10547: the set of classes changes and their
        number doesn't. A resumed training sees it.
        """

        saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 4}
        train(tmp_path, gpt2(), UnargmaxabilityTrainerCallback(4), max_steps=4, **saving)
        model, callback = gpt2(), UnargmaxabilityTrainerCallback(4, on_error="raise")
        folder = str(tmp_path / "checkpoint-4")
        assert (tmp_path / "checkpoint-4" / STATE_FILE).is_file()
        train_with(
            Growing(VOCABULARY - 1), tmp_path, model, callback, resume=folder, max_steps=8, **saving
        )
        assert steps_of(callback) == [0, 4, 8]
        first = callback.monitor.records[-1]
        assert (first.excluded, first.warm) == (1, False)
        report = report_of(callback)
        assert report.status.tolist() == fresh(model, {VOCABULARY - 1})
        assert report.name(5) == "t5"

    def test_padding_rows_beat_real_classes(self, tmp_path: Path) -> None:
        """https://github.com/NVIDIA/Megatron-LM/pull/52 and mirage-project/mirage 751: rows that
        stand for no token would hide all others.
        """

        def huge(model: Any) -> None:
            with torch.no_grad():
                model.lm_head.weight[[-1, -2]] = torch.tensor([[1e4], [-1e4]])

        model = untied()
        callback = UnargmaxabilityTrainerCallback(6, on_error="raise")
        train(tmp_path, model, At(12, huge), callback)
        assert report_of(callback).status.tolist() == fresh(model, UNUSED)
        assert report_of(callback).status.tolist() != fresh(model, set())

    @pytest.mark.parametrize("make", [marian, bart])
    def test_the_bias_is_an_untrained_buffer(self, tmp_path: Path, make: Any) -> None:
        """https://github.com/huggingface/transformers/issues/4567 (BART), and 5134: a token that is
        masked in generation is no question of geometry.
        """
        model = make()
        model.final_logits_bias[0, 7] = 1e6  # Nobody else can win.
        model.generation_config.bad_words_ids = [[9]]
        callback = UnargmaxabilityTrainerCallback(6, on_error="raise")
        train(tmp_path, model, callback)
        report = report_of(callback)
        layer = OutputLayer(
            model.lm_head.weight, model.final_logits_bias, excluded=sorted({9, *UNUSED})
        )
        assert report.status.tolist() == verify(layer).status.tolist()
        assert report.name(9) == "t9"
        assert report.ids(Status.ARGMAXABLE).tolist() == [7]


@pytest.mark.parametrize("dtype", ["bf16", "none"])
@pytest.mark.parametrize("background", [False, True])
def test_charts_are_complete_when_training_has_ended(
    tmp_path: Path, dtype: str, background: bool
) -> None:
    callback = UnargmaxabilityTrainerCallback(
        0, every_n_epochs=1, background=background, on_error="raise"
    )
    options: dict[str, Any] = {"report_to": ["tensorboard"], "gradient_accumulation_steps": 2}
    train(tmp_path, gpt2(), callback, bf16=dtype == "bf16", **options)
    folder = str(tmp_path / "runs" / "unargmaxability")
    steps = steps_of(callback)
    assert steps[-1] == 12
    assert scalar_steps(folder, "unarg/lm_head/provable") == steps


def test_nothing_runs_on_after_training(tmp_path: Path) -> None:
    """Each writer of TensorBoard has a thread and an open file."""
    before = set(threading.enumerate())
    callback = UnargmaxabilityTrainerCallback(4, background=True, on_error="raise")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="UnargmaxabilityMonitor: the check due")
        train(tmp_path, gpt2(), callback, report_to=["tensorboard"])
    assert set(threading.enumerate()) <= before


def test_a_crash_leaves_all_charts(tmp_path: Path) -> None:
    """Nothing tells a callback of transformers about an exception."""

    def crash(model: Any) -> None:
        raise KeyboardInterrupt

    callback = UnargmaxabilityTrainerCallback(3, on_error="raise")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, gpt2(), callback, At(7, crash), report_to=["tensorboard"])
    assert [line["step"] for line in read_json_lines(tmp_path)] == [0, 3, 6]
    folder = str(tmp_path / "runs" / "unargmaxability")
    assert scalar_steps(folder, "unarg/lm_head/provable") == [0, 3, 6]
