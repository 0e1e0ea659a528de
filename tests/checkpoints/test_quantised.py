"""Quantised layers: what is stored is not the weight."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.checkpoints.refusals import refusal
from unarg_callback.checkpoints import read_layer

WEIGHT = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
SCALE = WEIGHT.abs().amax(1)
INT8 = (WEIGHT / SCALE[:, None] * 127).round().to(torch.int8)
PACKED = torch.zeros(240, 1, dtype=torch.uint8)

# What bitsandbytes and others keep in place of a float weight.
LAYOUTS: dict[str, dict[str, Tensor]] = {
    "bitsandbytes int8": {
        "weight": INT8,
        "SCB": SCALE,
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    },
    "bitsandbytes int8 without format": {"weight": INT8, "SCB": SCALE},
    "bitsandbytes 4 bits": {
        "weight": PACKED,
        "weight.absmax": torch.ones(8),
        "weight.quant_map": torch.ones(16),
        "weight.quant_state.bitsandbytes__nf4": torch.zeros(80, dtype=torch.uint8),
    },
    "GPTQ": {
        "qweight": torch.zeros(1, 60, dtype=torch.int32),
        "qzeros": torch.zeros(1, 8, dtype=torch.int32),
        "scales": torch.ones(1, 60),
        "g_idx": torch.zeros(8, dtype=torch.int32),
    },
    "compressed-tensors": {"weight": INT8, "weight_scale": SCALE[:, None]},
    "float8": {"weight": WEIGHT.to(torch.float8_e4m3fn), "weight_scale_inv": SCALE[:1]},
    "integers alone": {"weight": INT8},
    "unsigned alone": {"weight": INT8.view(torch.uint8)},
}


def head(layout: str) -> dict[str, Tensor]:
    return {f"lm_head.{name}": tensor for name, tensor in LAYOUTS[layout].items()}


def folder(path: Path, tensors: dict[str, Tensor], **settings: Any) -> Path:
    save_file(tensors, path / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 60, **settings}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("embedding", [True, False])
def test_files(tmp_path: Path, layout: str, suffix: str, embedding: bool) -> None:
    path = tmp_path / f"a{suffix}"
    tensors = {**head(layout), **({"embed.weight": WEIGHT} if embedding else {})}
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    message = refusal(path)
    if not embedding or "2 layers" not in message:
        assert "quanti" in message
    name = next(iter(head(layout)))
    assert "quantise" in refusal(path, weight=name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("told", [True, False])
def test_folders(tmp_path: Path, layout: str, told: bool) -> None:
    settings = {"quantization_config": {"quant_method": "bitsandbytes"}} if told else {}
    message = refusal(
        folder(tmp_path, {**head(layout), "model.norm.weight": torch.ones(8)}, **settings)
    )
    assert "quantise" in message


def test_a_float_head_of_a_quantised_model_is_read(tmp_path: Path) -> None:
    body = {"model.up." + name: tensor for name, tensor in LAYOUTS["bitsandbytes int8"].items()}
    settings = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    head = {"lm_head.weight": WEIGHT.to(torch.bfloat16)}
    layer = read_layer(folder(tmp_path, {**body, **head}, **settings))
    assert torch.equal(layer.weight, head["lm_head.weight"])


@pytest.mark.parametrize("where", ["quantization_config", "text_config", "hf_quant_config.json"])
@pytest.mark.parametrize("beside", [True, False])
def test_what_is_not_plainly_float_is_refused_there(
    tmp_path: Path, where: str, beside: bool
) -> None:
    told = {"quant_method": "new"}
    settings = {"text_config": {"quantization_config": told}, "quantization_config": told}
    tensors = {"lm_head.weight": WEIGHT.to(torch.float8_e4m3fn)}
    if beside:
        tensors = {"lm_head.weight": WEIGHT, "lm_head.unheard_of": SCALE}
    own = {where: settings[where]} if where in settings else {}
    folder(tmp_path, tensors, **own)
    if not own:
        assert read_layer(tmp_path).classes == 60
        (tmp_path / where).write_text("{}")
    assert "the model is quantised" in refusal(tmp_path)


def test_integers_in_npz_are_values(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", W=INT8.numpy(), b=np.zeros(60, dtype=np.int64))
    assert torch.equal(read_layer(tmp_path / "a.npz").weight, INT8.double())
    np.savez(tmp_path / "b.npz", weight=INT8.numpy(), scale=SCALE.numpy())
    assert "quantised" in refusal(tmp_path / "b.npz")


@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_training_rounds(tmp_path: Path) -> None:
    quantisation = torch.ao.quantization
    layer = torch.ao.nn.qat.Linear(8, 60, qconfig=quantisation.get_default_qat_qconfig())
    torch.save({f"fc.{name}": t for name, t in layer.state_dict().items()}, tmp_path / "a.pt")
    message = refusal(tmp_path / "a.pt")
    assert "fc.weight (60, 8) is not used as it is" in message
    assert "dequantised" in message


def test_an_integer_bias(tmp_path: Path) -> None:
    tensors = {"fc.weight": WEIGHT, "fc.bias": torch.zeros(60, dtype=torch.int32)}
    torch.save(tensors, tmp_path / "a.pt")
    assert "int32" in refusal(tmp_path / "a.pt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: WEIGHT > 0, "holds bool"),
        (lambda: WEIGHT.to(torch.complex64), "holds complex64"),
        (lambda: WEIGHT.to_sparse(), "holds float32, sparse_coo"),
        (lambda: WEIGHT.to("meta"), "holds float32 on the device meta"),
        (lambda: torch.quantize_per_tensor(WEIGHT, 0.1, 0, torch.qint8), "holds qint8"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, made: Callable[[], Tensor], told: str
) -> None:
    tensor = made()
    torch.save({"fc.weight": tensor}, tmp_path / "a.pt")
    assert told in refusal(tmp_path / "a.pt")
    assert told in refusal(tmp_path / "a.pt", weight="fc.weight")
    torch.save({"fc.weight": tensor, "embed.weight": WEIGHT}, tmp_path / "a.pt")
    assert told.removeprefix("holds ") in refusal(tmp_path / "a.pt")


def test_long_doubles_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", weight=WEIGHT.numpy().astype(np.longdouble), bias=np.zeros(60))
    assert str(np.dtype(np.longdouble)) in refusal(tmp_path / "a.npz")
