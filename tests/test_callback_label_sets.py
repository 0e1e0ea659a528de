"""Label sets and attention keys in real Lightning runs, read back from what was written."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.tiny_training import events, scalar_steps, texts, trainer
from unarg_callback.callback import UnargmaxabilityMonitor
from unarg_callback.errors import UnargError
from unarg_callback.heads import MultilabelHead, SparseAttention
from unarg_callback.label_sets import verify_label_sets

pytestmark = [
    pytest.mark.usefixtures("time_enough"),
    pytest.mark.filterwarnings("ignore:.*nested tensor"),
    pytest.mark.filterwarnings("ignore:UnargmaxabilityMonitor. the check due"),
]

LABELS, FEATURES, WIDTH = 9, 6, 8


class Tagger(pl.LightningModule):
    """Attention of both kinds below two features below nine labels."""

    def __init__(self, method: str = "sparsemax+huber") -> None:
        super().__init__()
        self.losses: list[float] = []
        self.hooks_in_validation: list[int] = []
        self.embed = nn.Linear(FEATURES, 4 * WIDTH)
        self.sparse = SparseAttention(WIDTH, 2)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        self.body = nn.Linear(WIDTH, 2)
        self.head = MultilabelHead.named(method, in_features=2, num_labels=LABELS)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.embed(x).unflatten(-1, (4, WIDTH))
        mixed, _ = self.sparse(memory, memory, memory)
        z: Tensor = self.head(self.body(self.encoder(mixed).mean(1)))
        return z

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.head.loss(self(batch[0]), batch[1])
        self.losses.append(float(loss.detach()))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.head.loss(self(batch[0]), batch[1]))
        self.hooks_in_validation.append(len(self.encoder.self_attn._forward_pre_hooks))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def data(count: int = 6, size: int = 4) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count * size, FEATURES, generator=draw)
    y = torch.rand(count * size, LABELS, generator=draw) < 0.3
    return DataLoader(TensorDataset(x, y), batch_size=size)


def labels_of(batch: Any) -> Any:
    return batch[1]


def seeded(*arguments: Any) -> Tagger:
    torch.manual_seed(0)
    return Tagger(*arguments)


def watching(**options: Any) -> UnargmaxabilityMonitor:
    given = {"every_n_steps": 3, "on_error": "raise", "max_overhead": None, **options}
    return UnargmaxabilityMonitor(**given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One training with everything, that many tests read."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unarg_callback.monitoring.monitor._CREDIT", 3600.0)
        monitor, model = (
            watching(attention=True, labels=[f"tag{i}" for i in range(LABELS)]),
            seeded(),
        )
        logger = TensorBoardLogger(folder)
        fit = trainer(folder, monitor, logger=logger)
        fit.fit(model, data(), data(2))
    return model, monitor, logger.log_dir, fit


class TestWhatIsWritten:
    def test_scalars(self, run: Any) -> None:
        _, monitor, folder, _ = run
        assert [record.step for record in monitor.records] == [0, 3, 6, 9, 12]
        for name in ("seen", "out_of_reach", "undecided", "rows_out_of_reach"):
            tag = f"unarg_labels/head/{name}"
            assert scalar_steps(folder, tag) == [3, 6, 9, 12]
            written = [event.value for event in events(folder).Scalars(tag)]
            assert written == pytest.approx([r.label_sets[name] for r in monitor.records[1:]])
        assert scalar_steps(folder, "unarg_cost/head/label_sets_seconds") == [3, 6, 9, 12]
        for layer in ("sparse", "encoder.self_attn"):
            for name in ("keys", "never_first", "undecided"):
                tag = f"unarg_attention/{layer}/{name}"
                assert scalar_steps(folder, tag) == [3, 6, 9, 12]
                written = [event.value for event in events(folder).Scalars(tag)]
                assert written == [r.attention[layer][name] for r in monitor.records[1:]]
            assert monitor.records[-1].attention[layer]["keys"] == 2 * 2 * 4

    def test_the_numbers_are_those_of_a_check_from_scratch(self, run: Any) -> None:
        model, monitor, _, _ = run
        sets = data().dataset.tensors[1]  # type: ignore[attr-defined]
        report = verify_label_sets(model.head.label_head(), sets.unique(dim=0))
        found = monitor.label_sets["head"]
        assert found.report.counts == report.counts
        assert found.report.counts["unattainable"] > 0
        assert int(found.asked.times.sum()) == 2 * len(sets)
        numbers = monitor.records[-1].label_sets
        assert numbers["seen"] == len(report.status)
        each = verify_label_sets(model.head.label_head(), sets)
        assert numbers["rows_out_of_reach"] == each.counts["unattainable"] / len(sets)

    def test_metrics(self, run: Any) -> None:
        _, monitor, _, fit = run
        last = monitor.records[-1]
        for name in ("seen", "out_of_reach", "undecided", "rows_out_of_reach"):
            expected = pytest.approx(last.label_sets[name])
            assert float(fit.callback_metrics[f"unarg_labels/head/{name}"]) == expected
        assert "unarg_attention/sparse/never_first" in fit.callback_metrics

    def test_table_and_layout(self, run: Any) -> None:
        _, monitor, folder, _ = run
        step, text = texts(folder, "unarg/head/label_sets")[-1]
        found = monitor.label_sets["head"]
        first = found.out_of_reach[0]
        names = ", ".join(f"tag{i}" for i in np.flatnonzero(found.asked.sets[first]))
        assert names in text
        assert "sparsegen-lin 0" in text
        assert "label sets" in text
        assert step <= 12
        tensors = events(folder).Tensors("custom_scalars__config__")
        layout = tensors[-1].tensor_proto.string_val[0].decode(errors="replace")
        for word in ("label sets: seen, out of reach, undecided", "unarg_attention/sparse"):
            assert word in layout

    def test_json_lines(self, run: Any) -> None:
        _, monitor, folder, _ = run
        lines = (Path(folder) / "unargmaxability.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        assert [record["step"] for record in records] == [0, 3, 6, 9, 12]
        assert records[0]["out_of_reach"] == []
        last, found = records[-1], monitor.label_sets["head"]
        assert last["label_sets"]["out_of_reach"] == len(found.out_of_reach)
        assert last["attention"] == monitor.records[-1].attention
        rows = last["out_of_reach"]
        assert len(rows) == min(len(found.out_of_reach), 50)
        members = np.flatnonzero(found.asked.sets[found.out_of_reach[0]]).tolist()
        assert rows[0]["labels"] == members
        assert rows[0]["names"] == [f"tag{i}" for i in members]
        assert rows[0]["rows"] == max(row["rows"] for row in rows)
        assert all(0 <= row["since_step"] <= 12 for row in rows)

    def test_no_hook_is_left(self, run: Any) -> None:
        """In evaluation neither, as hooks close torch's fast path; a later check had keys."""
        model = run[0]
        assert sum(model.hooks_in_validation) == 0 < len(model.hooks_in_validation)
        assert not any(part._forward_pre_hooks for part in model.modules())


def test_a_function_by_its_import_path(tmp_path: Path) -> None:
    monitor = watching(label_sets=f"{__name__}:labels_of")
    trainer(tmp_path, monitor, logger=TensorBoardLogger(tmp_path)).fit(seeded(), data())
    assert int(monitor.label_sets["head"].asked.times.sum()) == 48


def test_resume_with_weights_only(tmp_path: Path) -> None:
    whole = watching()
    trainer(tmp_path, whole, logger=TensorBoardLogger(tmp_path)).fit(seeded(), data())
    first = watching()
    saver = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1)
    half = {"logger": TensorBoardLogger(tmp_path), "enable_checkpointing": True}
    trainer(tmp_path, first, saver, max_epochs=1, **half).fit(seeded(), data())
    path = tmp_path / "last.ckpt"
    torch.load(path, weights_only=True)
    second = watching()
    fit = trainer(tmp_path, second, logger=TensorBoardLogger(tmp_path))
    fit.fit(seeded(), data(), ckpt_path=path, weights_only=True)
    assert [record.step for record in second.records] == [0, 3, 6, 9, 12]
    one, other = whole.label_sets["head"], second.label_sets["head"]
    assert one.asked.times.sum() == other.asked.times.sum() == 48
    assert one.since.tolist() == other.since.tolist()
    assert one.asked.sets.tolist() == other.asked.sets.tolist()
    assert one.report.status.tolist() == other.report.status.tolist()


def test_a_failing_function_is_a_warning_or_an_error(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    with pytest.raises(UnargError, match="label_sets failed"):
        trainer(tmp_path, watching(label_sets=len), logger=logger).fit(seeded(), data())
    monitor = watching(label_sets=lambda batch: batch + 1, on_error="warn")
    fit = trainer(tmp_path, monitor, logger=logger)
    with pytest.warns(UserWarning, match="label_sets failed on a training batch: TypeError"):
        fit.fit(seeded(), data())
    assert monitor.monitor.retired is not None


def test_after_an_exception_no_hook_is_left(tmp_path: Path) -> None:
    class Failing(Tagger):
        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            if batch_idx == 4:
                raise RuntimeError("mine")
            return super().training_step(batch, batch_idx)

    torch.manual_seed(0)
    model, monitor = Failing(), watching(attention=True)
    with pytest.raises(RuntimeError, match="mine"):
        trainer(tmp_path, monitor, logger=TensorBoardLogger(tmp_path)).fit(model, data())
    assert not any(part._forward_pre_hooks for part in model.modules())
    copy.deepcopy(monitor)


MODES: dict[str, dict[str, Any]] = {
    "targets, in the background": {"background": True},
    "a function": {"label_sets": lambda batch: batch[1], "every_n_steps": 4},
    "all": {"attention": True, "domain": "observed", "every_n_epochs": 1, "every_n_steps": 2},
}


def fitted(folder: Path, *callbacks: pl.Callback) -> dict[str, Any]:
    """All that a training leaves behind."""
    pl.seed_everything(5, verbose=False)
    model = Tagger()
    fit = trainer(folder, *callbacks, logger=TensorBoardLogger(folder), val_check_interval=2)
    loader = DataLoader(data().dataset, batch_size=4, shuffle=True)
    fit.fit(model, loader, data(2))
    legacy: Any = np.random.get_state()
    return {
        "losses": model.losses,
        "validation": float(fit.callback_metrics["val_loss"]),
        "weights": {name: value.tolist() for name, value in model.state_dict().items()},
        "optimizer": str(fit.optimizers[0].state_dict()),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [str(legacy[0]), np.asarray(legacy[1]).tolist(), str(legacy[2:])],
        "python": random.getstate(),
        "mode": model.training,
    }


@pytest.mark.slow
def test_trainings_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    """Dropout draws at each step."""
    plain = fitted(tmp_path / "plain")
    assert len(set(plain["losses"])) == 12
    for name, options in MODES.items():
        monitor = watching(**options)
        watched = fitted(tmp_path / name, monitor)
        assert monitor.records[-1].step == 12
        assert monitor.records[-1].label_sets["seen"] > 0
        for what, expected in plain.items():
            assert watched[what] == expected, (name, what)
