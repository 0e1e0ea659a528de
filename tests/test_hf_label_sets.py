"""Label sets and attention keys in a transformers Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers")

from unarg_callback.heads import MultilabelHead, SparseAttention
from unarg_callback.hf import UnargmaxabilityTrainerCallback

pytestmark = pytest.mark.usefixtures("time_enough")

LABELS = 7


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(index)
        return {
            "x": torch.randn(3, 4, generator=draw),
            "labels": torch.rand(LABELS, generator=draw) < 0.4,
        }


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.att = SparseAttention(4, 2)
        self.body = nn.Linear(4, 2)
        self.head = MultilabelHead.named("sparsemax+hinge", in_features=2, num_labels=LABELS)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        z = self.head(self.body(self.att(x, x, x)[0][:, 0]))
        return {"loss": self.head.loss(z, labels), "logits": z}


def train(folder: Path, callback: Any) -> None:
    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=12,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    transformers.Trainer(
        model=Tagger(), args=arguments, train_dataset=Rows(), callbacks=[callback]
    ).train()


def watching(**options: Any) -> Any:
    given = {"every_n_steps": 4, "on_error": "raise", "max_overhead": None, **options}
    return UnargmaxabilityTrainerCallback(layer="head", **given)


def test_targets_and_keys(tmp_path: Path) -> None:
    callback = watching(attention=["att"])
    train(tmp_path, callback)
    last = callback.monitor.records[-1]
    assert last.step == 12
    assert int(callback.monitor.label_sets["head"].asked.times.sum()) == 48
    assert last.label_sets["out_of_reach"] > 0
    assert last.attention["att"]["keys"] == 2 * 2 * 3


def test_given_sets_and_rule(tmp_path: Path) -> None:
    callback = watching(label_sets=[[0], list(range(LABELS))], rule="threshold:0.5")
    train(tmp_path, callback)
    found = callback.monitor.label_sets["head"]
    assert found.report.rule == "threshold 0.5"
    assert found.asked.times.tolist() == [1, 1]


def test_a_function_never_gets_a_batch(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no label sets of head: none was seen yet"):
        train(tmp_path, watching(label_sets=lambda batch: batch["labels"]))
