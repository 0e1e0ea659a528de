"""Files as the real libraries write them: right layer, right values, little else read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from tests.shared_data import SHARED, load_layer, needs_shared
from unarg_callback import CheckpointError, LayerError
from unarg_callback.checkpoints import locate_layer, open_file, read_layer


def linear(classes: int = 10, dim: int = 4, dtype: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(dim, classes).to(dtype)


class Tied(nn.Module):
    """An embedding whose matrix is also the output layer's, which has a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.generator = nn.Linear(4, 10)
        self.generator.weight = self.embed.weight


@needs_shared
def test_real_layer() -> None:
    assert SHARED is not None
    layer = read_layer(SHARED / "data/layers/g2pm.npz")
    weight, bias, _ = load_layer("g2pm")
    assert np.array_equal(layer.weight.numpy(), weight)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), bias)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_dtypes(tmp_path: Path, suffix: str, dtype: torch.dtype) -> None:
    state = linear(dtype=dtype).state_dict()
    path = tmp_path / f"layer{suffix}"
    _save(state, path)
    layer = read_layer(path)
    assert layer.weight.dtype == dtype
    assert torch.equal(layer.weight, state["weight"])
    assert layer.bias is not None
    assert torch.equal(layer.bias, state["bias"])


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4"])
def test_integers(tmp_path: Path, dtype: str) -> None:
    weight = np.arange(40).reshape(10, 4).astype(dtype)
    np.savez(tmp_path / "int.npz", W=weight, b=np.arange(10).astype(dtype))
    layer = read_layer(tmp_path / "int.npz")
    assert np.array_equal(layer.weight.numpy(), weight)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_npz_dtypes_and_memory_orders(tmp_path: Path, dtype: str) -> None:
    weight = np.asfortranarray(np.arange(40).reshape(10, 4).astype(dtype))
    np.savez(tmp_path / "a.npz", W=weight, b=np.zeros(10))
    assert np.array_equal(read_layer(tmp_path / "a.npz").weight.numpy(), weight)


def test_integers_too_large_to_be_exact(tmp_path: Path) -> None:
    np.savez(tmp_path / "u.npz", W=np.full((3, 2), 2**64 - 1, "u8"), b=np.zeros(3))
    with pytest.raises(CheckpointError, match="beyond"):
        read_layer(tmp_path / "u.npz")
    np.savez(tmp_path / "i.npz", W=np.full((3, 2), 2**60), b=np.zeros(3))
    with pytest.raises(LayerError, match="beyond"):
        read_layer(tmp_path / "i.npz")


@pytest.mark.parametrize("shape", [(10, 1), (1, 10), (10,)])
@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_bias_shapes(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    path = tmp_path / f"layer{suffix}"
    bias = torch.arange(10.0)
    _save({"x.weight": torch.ones(10, 4), "x.bias": bias.reshape(shape)}, path)
    layer = read_layer(path)
    assert layer.bias is not None
    assert torch.equal(layer.bias, bias)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["weight", "bias"])
def test_values_that_are_not_finite(tmp_path: Path, suffix: str, bad: float, where: str) -> None:
    path = tmp_path / f"layer{suffix}"
    tensors = {"weight": torch.ones(10, 4), "bias": torch.ones(10)}
    tensors[where][3] = bad
    _save(tensors, path)
    with pytest.raises(LayerError, match=f"{where} has NaN or inf .*3"):
        read_layer(path)
    assert read_layer(path, excluded=[3]).excluded == (3,)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
@pytest.mark.parametrize("shape", [(0, 4), (10, 0), (0, 0)])
def test_empty_matrix(tmp_path: Path, suffix: str, shape: tuple[int, int]) -> None:
    path = tmp_path / f"layer{suffix}"
    _save({"weight": torch.ones(shape), "bias": torch.ones(shape[0])}, path)
    with pytest.raises((LayerError, CheckpointError), match=r"weight.*\(\d+, \d+\)"):
        read_layer(path, weight="weight")


def test_legacy_torch_format(tmp_path: Path) -> None:
    state = linear().state_dict()
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(read_layer(tmp_path / "old.pt").weight, state["weight"])


@pytest.mark.parametrize("keys", [("state_dict",), ("model",), ("a", "b", "c"), ("module",)])
def test_nested_dicts(tmp_path: Path, keys: tuple[str, ...]) -> None:
    content: dict[str, Any] = {"head." + k: v for k, v in linear().state_dict().items()}
    for key in reversed(keys):
        content = {key: content, "epoch": 3}
    torch.save(content, tmp_path / "nested.pt")
    assert read_layer(tmp_path / "nested.pt").classes == 10
    assert read_layer(tmp_path / "nested.pt", weight="head.weight").classes == 10


def test_optimizer_state_is_not_the_model(tmp_path: Path) -> None:
    module = linear()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    content = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(content, tmp_path / "a.pt")
    assert [e.name for e in open_file(tmp_path / "a.pt").entries] == ["weight", "bias"]


def test_a_second_copy_beside_the_state_dict_must_be_named(tmp_path: Path) -> None:
    raw, averaged = linear().state_dict(), {k: 2 * v for k, v in linear().state_dict().items()}
    torch.save({"state_dict": averaged, "current_model_state": raw}, tmp_path / "ema.ckpt")
    assert torch.equal(read_layer(tmp_path / "ema.ckpt").weight, averaged["weight"])
    named = read_layer(tmp_path / "ema.ckpt", weight="current_model_state.weight")
    assert torch.equal(named.weight, raw["weight"])
    assert named.bias is not None
    assert torch.equal(named.bias, raw["bias"])


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz"])
def test_tied_weights_count_once(tmp_path: Path, suffix: str) -> None:
    state = {name: tensor.clone() for name, tensor in Tied().state_dict().items()}
    path = tmp_path / f"tied{suffix}"
    _save(state, path)
    located = locate_layer(path)
    assert "embed.weight" in located.describe()
    assert "generator.weight" in located.describe()
    assert "bias generator.bias" in located.describe()
    assert torch.equal(located.load().weight, state["generator.weight"])


def test_tied_weights_that_share_memory(tmp_path: Path) -> None:
    torch.save(Tied().state_dict(), tmp_path / "tied.pt")
    assert locate_layer(tmp_path / "tied.pt").bias is not None


def test_tied_weights_that_save_model_left_out(tmp_path: Path) -> None:
    model = Tied()
    save_model(model, str(tmp_path / "tied.safetensors"))
    for weight in (None, "embed.weight", "generator.weight"):
        layer = read_layer(tmp_path / "tied.safetensors", weight=weight)
        assert torch.equal(layer.weight, model.embed.weight)
        assert layer.bias is not None
        assert torch.equal(layer.bias, model.generator.bias)


def test_untied_weights_are_ambiguous(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in Tied().state_dict().items()}
    state["embed.weight"][-1, -1] += 1
    torch.save(state, tmp_path / "untied.pt")
    with pytest.raises(CheckpointError, match="2 layers that could be meant"):
        read_layer(tmp_path / "untied.pt")


def test_the_layer_owns_its_memory(tmp_path: Path) -> None:
    state = {**linear().state_dict(), "other.weight": torch.zeros(1, 10**6)}
    torch.save(state, tmp_path / "big.pt")
    layer = read_layer(tmp_path / "big.pt", weight="weight")
    assert layer.weight.untyped_storage().nbytes() == 160
    before = layer.weight.clone()
    (tmp_path / "big.pt").write_bytes(b"\0" * 100)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_content_decides_where_the_suffix_is_wrong(tmp_path: Path, suffix: str) -> None:
    _save(linear().state_dict(), tmp_path / f"a{suffix}")
    for wrong in (".npz", ".pt", ".model"):
        path = (tmp_path / f"a{suffix}").rename(tmp_path / f"b{wrong}")
        assert read_layer(path).classes == 10
        path.rename(tmp_path / f"a{suffix}")


def test_names_and_excluded_are_passed_on(tmp_path: Path) -> None:
    _save(linear().state_dict(), tmp_path / "a.pt")
    layer = read_layer(tmp_path / "a.pt", names=[f"c{i}" for i in range(10)], excluded=[0, 9])
    assert layer.name(3) == "c3"
    assert layer.excluded == (0, 9)
    with pytest.raises(LayerError, match=r"\[10\] are out of range"):
        read_layer(tmp_path / "a.pt", excluded=[10])


def test_lightning_checkpoint(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"lr": 0.1})
            self.generator = nn.Linear(4, 10)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            loss: Tensor = self.generator(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    module = Module()
    trainer = lightning.Trainer(
        max_steps=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    located = locate_layer(tmp_path / "last.ckpt")
    assert located.weight.name == "generator.weight"
    layer = located.load()
    assert torch.equal(layer.weight, module.generator.weight.detach())
    assert layer.bias is not None
    assert torch.equal(layer.bias, module.generator.bias.detach())


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
