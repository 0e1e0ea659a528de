"""What users have reported about callbacks beside precision, averaging, compilation, odd rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger
from torch import nn

from tests.test_user_reports import steps_of, verdicts, verdicts_of
from tests.tiny_training import (
    CLASSES,
    DIM,
    Classifier,
    batches,
    seeded,
    trainer,
)
from unarg_callback import UnargmaxabilityMonitor, verify
from unarg_callback.geometry.layer import OutputLayer
from unarg_callback.geometry.proof import Status
from unarg_callback.incremental import IncrementalVerifier
from unarg_callback.snapshots.snapshot import find_layer, take_snapshot

pytestmark = [
    pytest.mark.usefixtures("time_enough"),
    # A check in the background of a run this short is late.
    pytest.mark.filterwarnings("ignore:UnargmaxabilityMonitor. the check due"),
]


class Quiet(Classifier):
    """Logs nothing: ``self.log`` fails in a compiled module (Lightning 21836)."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)


class TestPrecision:
    @pytest.mark.parametrize(
        ("precision", "dtype"),
        [
            ("bf16-mixed", torch.float32),
            ("bf16-true", torch.bfloat16),
            ("16-true", torch.float16),
            ("64-true", torch.float64),
        ],
    )
    @pytest.mark.parametrize("background", [False, True])
    def test_numpy_has_no_bfloat16(
        self, tmp_path: Path, precision: str, dtype: torch.dtype, background: bool
    ) -> None:
        """https://github.com/CalculatedContent/WeightWatcher/issues/221: what is checked is the
        weight that is stored, each number exactly.
        """
        model = seeded(Quiet)
        monitor = UnargmaxabilityMonitor(
            every_n_steps=3, observe=True, background=background, on_error="raise"
        )
        run = trainer(tmp_path, monitor, logger=DummyLogger(), precision=precision)
        run.fit(model, batches())
        assert model.generator.weight.dtype == dtype
        assert steps_of(monitor)[-1] == 14
        exact = OutputLayer(model.generator.weight.double(), model.generator.bias.double())
        assert verdicts_of(monitor) == verify(exact).status.tolist()
        assert monitor.activation_ranges["generator"].tokens == 14 * 4


class TestAveraging:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/21724: weights that a hook sees may
    not be those that are trained.
    """

    @pytest.mark.parametrize("every", [5, 7])
    @pytest.mark.parametrize("first", [False, True])
    def test_the_final_check_is_of_what_was_there(
        self, tmp_path: Path, first: bool, every: int
    ) -> None:
        """Whichever comes first decides; also where the last step was checked before the end."""
        raw: dict[str, nn.Module] = {}

        class Last(pl.Callback):
            def on_train_batch_end(
                self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
            ) -> None:
                layer = nn.Linear(DIM, CLASSES)
                layer.load_state_dict(pl_module.get_submodule("generator").state_dict())
                raw["generator"] = layer

        model, average = seeded(), EMAWeightAveraging(decay=0.9)
        monitor = UnargmaxabilityMonitor(every_n_steps=every)
        both = [average, monitor] if first else [monitor, average]
        logger = TensorBoardLogger(tmp_path)
        trainer(tmp_path, *both, Last(), logger=logger).fit(model, batches(), batches(2))
        trained = nn.ModuleDict(raw)
        assert verdicts(model) != verdicts(trained)
        assert verdicts_of(monitor) == verdicts(model if first else trained)

    def test_validation_with_averaged_weights_is_not_seen(self, tmp_path: Path) -> None:
        def fit(*callbacks: pl.Callback) -> list[Any]:
            monitor = UnargmaxabilityMonitor(every_n_steps=2, every_n_epochs=1)
            run = trainer(tmp_path, monitor, *callbacks, logger=DummyLogger(), val_check_interval=3)
            run.fit(seeded(), batches(), batches(2))
            return [(record.step, record.provable, record.leads) for record in monitor.records]

        assert fit() == fit(EMAWeightAveraging(decay=0.5))

    def test_checkpoints_of_averaged_weights(self, tmp_path: Path) -> None:
        save = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=5, save_top_k=-1)
        options: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        monitor = UnargmaxabilityMonitor(every_n_steps=5)
        trainer(tmp_path, EMAWeightAveraging(), monitor, save, **options).fit(seeded(), batches())
        (file,) = (tmp_path / "saved").glob("*step=5.ckpt")
        assert "current_model_state" in torch.load(file, weights_only=True)
        again = UnargmaxabilityMonitor(every_n_steps=5)
        more = trainer(tmp_path, EMAWeightAveraging(), again, **options)
        more.fit(seeded(), batches(), ckpt_path=file, weights_only=True)
        assert steps_of(again) == [0, 5, 10, 14]
        # The proofs saved at step 5 were of the weights that training goes on with.
        assert [record.lost for record in again.records] == [
            record.lost for record in monitor.records
        ]

    @pytest.mark.parametrize("first", [False, True])
    def test_stochastic_weight_averaging(self, tmp_path: Path, first: bool) -> None:
        average = StochasticWeightAveraging(0.1, swa_epoch_start=1)
        monitor = UnargmaxabilityMonitor(every_n_steps=5, on_error="raise")
        both = [average, monitor] if first else [monitor, average]
        model = seeded()
        trainer(tmp_path, *both, logger=DummyLogger(), max_epochs=4).fit(model, batches())
        assert steps_of(monitor) == [0, 5, 10, 15, 20, 25, 28]
        if first:
            assert verdicts_of(monitor) == verdicts(model)


class TestCompiled:
    """https://github.com/Lightning-AI/pytorch-lightning/issues/17415 and 20233: ``_orig_mod``."""

    @pytest.mark.parametrize("how", ["module", "method", "inside"])
    @pytest.mark.parametrize("domain", ["box:100", "observed"])
    def test_the_whole_training_module(self, tmp_path: Path, how: str, domain: str) -> None:
        torch.compiler.reset()
        model = given = seeded(Quiet)
        if how == "module":
            given = torch.compile(model, backend="eager")
        elif how == "method":
            model.compile(backend="eager")
        else:
            model.generator = torch.compile(model.generator, backend="eager")
        save = ModelCheckpoint(tmp_path / "saved", save_last=True)
        monitor = UnargmaxabilityMonitor("generator", 5, domain=domain, on_error="raise")
        options: dict[str, Any] = {"logger": DummyLogger(), "enable_checkpointing": True}
        trainer(tmp_path, monitor, save, **options).fit(given, batches())
        assert list(monitor.heads) == ["generator"]
        assert steps_of(monitor) == [*([0] if domain == "box:100" else []), 5, 10, 14]
        report = monitor.last_report
        assert report is not None
        fresh = verify(take_snapshot(find_layer(model, "generator")), report.domain)
        assert verdicts_of(monitor) == fresh.status.tolist()
        # What one training saved, another takes up, compiled or not.
        resumed = UnargmaxabilityMonitor("generator", 5, domain=domain)
        state = torch.load(tmp_path / "saved" / "last.ckpt", weights_only=True)["callbacks"]
        resumed.load_state_dict(state[resumed.state_key])
        assert steps_of(resumed)[-1] == 10


def test_weights_that_are_tied(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/30202: one tensor, two names."""

    class Tied(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(CLASSES, DIM)
            self.generator = nn.Linear(DIM, CLASSES, bias=False)
            self.generator.weight = self.embedding.weight

        def loss(self, batch: Any) -> Any:
            return super().loss(batch) + self.embedding(batch[1]).square().mean()

    model, monitor = seeded(Tied), UnargmaxabilityMonitor(["generator", "embedding"], 5)
    trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
    one, two = (monitor.heads[name].last_report for name in ("generator", "embedding"))
    assert one is not None
    assert two is not None
    assert one.status.tolist() == two.status.tolist() == verdicts(model)


def test_reserved_rows_that_are_all_zero(tmp_path: Path) -> None:
    """https://github.com/OpenRLHF/OpenRLHF/pull/648, https://github.com/unslothai/unsloth/issues/1056
    (and https://huggingface.co/google/gemma-4-E4B/discussions/7: collapsed rows).
    """
    model = seeded(Classifier, 0.0)
    with torch.no_grad():
        model.generator.weight[-4:] = 0
        model.generator.bias[-4:] = 0
    monitor = UnargmaxabilityMonitor(every_n_steps=7, on_error="raise")
    trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
    report = monitor.last_report
    assert report is not None
    assert monitor.records[-1].duplicates == 4
    zero = set(range(CLASSES - 4, CLASSES))
    listed = {one["class"]: one["duplicate_of"] for one in report.to_dict()["unargmaxable"]}
    assert zero <= listed.keys()
    assert all(listed[index] in zero - {index} for index in zero)


def test_never_predicted_is_not_the_same_as_out_of_reach(tmp_path: Path) -> None:
    """https://github.com/zilongzhong/SSRN/issues/26, https://github.com/cleanlab/cleanlab/issues/639."""
    model = seeded()
    with torch.no_grad():
        corners = torch.linspace(0, 2 * torch.pi, CLASSES)
        model.generator.weight.copy_(torch.stack([corners.cos(), corners.sin()], 1))
        model.generator.weight[-1] = 0
        model.generator.bias.zero_()
        model.generator.bias[0] = -5
    monitor = UnargmaxabilityMonitor(every_n_steps=0)
    model.learning_rate = 0.0
    trainer(tmp_path, monitor, logger=DummyLogger()).fit(model, batches())
    inputs = torch.cat([batch[0] for batch in batches()])
    predicted = model.generator(model.encoder(inputs)).argmax(1).tolist()
    status = verdicts_of(monitor)
    assert not {0, CLASSES - 1} & set(predicted)
    assert (status[0], status[-1]) == (Status.ARGMAXABLE, Status.UNARGMAXABLE)


def test_the_weight_that_was_read_is_not_kept(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/pull/45079: a head that is made anew."""

    class Renewed(pl.Callback):
        def on_train_batch_start(
            self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
        ) -> None:
            if trainer.global_step == 5:
                generator = torch.Generator().manual_seed(7)
                fresh = nn.Linear(DIM, CLASSES + 4)
                nn.init.normal_(fresh.weight, generator=generator)
                pl_module.generator = fresh

    model, monitor = seeded(), UnargmaxabilityMonitor(every_n_steps=3)
    trainer(tmp_path, monitor, Renewed(), logger=DummyLogger()).fit(model, batches())
    assert [record.classes for record in monitor.records] == [12, 12, 16, 16, 16, 16]
    assert verdicts_of(monitor) == verdicts(model)


def test_the_verifier_used_here_needs_no_licence() -> None:
    """https://github.com/cat538/MxMoE/issues/4: Gurobi's size-limited licence."""
    layer = take_snapshot(find_layer(seeded(), "generator"))
    assert IncrementalVerifier().update(layer).complete
    assert "gurobipy" not in sys.modules
