"""Adapters of PEFT and others: the base weight is never taken for the layer."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.checkpoints.refusals import refusal
from unarg_callback.checkpoints import read_layer
from unarg_callback.checkpoints.parts import changes_layer

peft = pytest.importorskip("peft")


class Model(nn.Module):
    """An embedding, a body and a head."""

    def __init__(self, head_bias: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 8)
        self.body = nn.Linear(8, 8, bias=False)
        self.lm_head = nn.Linear(8, 60, bias=head_bias)

    def forward(self, ids: Tensor) -> Tensor:
        """(B,) ids to (B, C) scores."""
        scores: Tensor = self.lm_head(self.body(self.embed(ids)))
        return scores


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("LoraConfig", {"r": 2, "init_lora_weights": False}),
    "dora": ("LoraConfig", {"r": 2, "use_dora": True}),
    "adalora": ("AdaLoraConfig", {"init_r": 2, "target_r": 1, "total_step": 10}),
    "loha": ("LoHaConfig", {"r": 2}),
    "lokr": ("LoKrConfig", {"r": 2}),
    "ia3": ("IA3Config", {"feedforward_modules": []}),
    "vera": ("VeraConfig", {"r": 2}),
    "oft": ("OFTConfig", {"r": 2, "oft_block_size": 0}),
}
TARGET = "lm_head"
BASE = "base_model.model.lm_head.base_layer.weight"


def adapted(kind: str, head_bias: bool = False, **options: Any) -> Any:
    torch.manual_seed(0)
    name, settings = KINDS[kind]
    config = getattr(peft, name)(**{"target_modules": [TARGET], **settings, **options})
    return peft.get_peft_model(Model(head_bias), config)


def kept(model: Any, path: Path) -> Path:
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)
    return path


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_an_adapted_head_is_refused(tmp_path: Path, kind: str, suffix: str, bias: bool) -> None:
    path = kept(adapted(kind, bias), tmp_path / f"a{suffix}")
    assert "merge_and_unload" in refusal(path)
    assert "merge_and_unload" in refusal(path, weight=BASE)


@pytest.mark.parametrize("kind", ["lora", "loha", "ia3"])
def test_merged_it_is_read(tmp_path: Path, kind: str) -> None:
    model = adapted(kind)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "base_layer" not in name:
                tensor.normal_()
    model.eval()
    before = model(torch.arange(60))
    merged = model.merge_and_unload()
    layer = read_layer(kept(merged, tmp_path / "a.pt"), weight="lm_head.weight")
    after = merged.body(merged.embed.weight) @ layer.weight.T
    assert torch.allclose(after, before, atol=1e-4)


def test_an_embedding_is_not_taken_in_place_of_the_head(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tensors = {n: t for n, t in adapted("lora").state_dict().items() if "body" not in n}
    torch.save(tensors, path)
    message = refusal(path)
    assert "lm_head.base_layer.weight (60, 8), one part of" in message
    assert "base_model.model.embed.weight (60, 8)" in message
    assert read_layer(path, weight="embed.weight").classes == 60


def test_an_adapted_body_leaves_the_head_as_it_is(tmp_path: Path) -> None:
    model = adapted("lora", target_modules=["body"])
    path = kept(model, tmp_path / "a.pt")
    layer = read_layer(path, weight="lm_head.weight")
    assert torch.equal(layer.weight, model.base_model.model.lm_head.weight)


def test_a_head_that_was_trained_as_a_whole(tmp_path: Path) -> None:
    model = adapted("lora", target_modules=["body"], modules_to_save=["lm_head"])
    path = kept(model, tmp_path / "a.pt")
    assert "merge_and_unload" in refusal(path, weight="lm_head.original_module.weight")
    trained = "lm_head.modules_to_save.default.weight"
    assert read_layer(path, weight=trained).classes == 60


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_an_adapter_alone(tmp_path: Path) -> None:
    adapted("lora").save_pretrained(tmp_path)
    assert "merge_and_unload" in refusal(tmp_path / "adapter_model.safetensors")


def test_an_adapter_beside_a_model(tmp_path: Path) -> None:
    weight = torch.randn(60, 8)
    save_file({"lm_head.weight": weight}, tmp_path / "model.safetensors")
    settings = {"architectures": ["LlamaForCausalLM"], "vocab_size": 60}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "merge_and_unload" in refusal(tmp_path)
    assert torch.equal(read_layer(tmp_path / "model.safetensors").weight, weight)


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
@pytest.mark.parametrize("wrapped", [TARGET, f"{TARGET}.weight"])
def test_an_adapted_head_of_transformers(tmp_path: Path, wrapped: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=60, intermediate_size=8, **sizes)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    target = {"target_modules": [TARGET], "r": 2}
    if wrapped != TARGET:
        target = {"target_parameters": [wrapped], "target_modules": [], "r": 2}
    model = peft.get_peft_model(model, peft.LoraConfig(**target))
    kept(model, tmp_path / "model.safetensors")
    assert "merge_and_unload" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("weight", "factor"),
    [
        ("lm_head.weight", "lm_head.lora_A"),  # loralib
        ("lm_head.weight", "lm_head.lora_a.weight"),  # torchtune
        ("lm_head.linear.weight", "lm_head.lora_B"),  # LitGPT
        ("weight", "lora_A"),
    ],
)
def test_factors_beside_a_plain_weight(tmp_path: Path, weight: str, factor: str) -> None:
    path = tmp_path / "a.pt"
    torch.save({weight: torch.ones(60, 8), factor: torch.ones(2, 8)}, path)
    assert "is not used as it is" in refusal(path)
    assert "is not used as it is" in refusal(path, weight=weight)


def test_a_head_tied_to_an_adapted_embedding(tmp_path: Path) -> None:
    tied = torch.randn(60, 8)
    tensors = {"lm_head.weight": tied, "embed.weight": tied, "embed.lora_A": torch.ones(2, 60)}
    torch.save(tensors, tmp_path / "a.pt")
    assert "embed.lora_A" in refusal(tmp_path / "a.pt")


def test_every_name_that_peft_gives_to_a_part() -> None:
    for module in pkgutil.walk_packages(peft.tuners.__path__, "peft.tuners."):
        if module.name.endswith(".layer"):
            importlib.import_module(module.name)
    base = importlib.import_module("peft.tuners.tuners_utils").BaseTunerLayer
    names: set[str] = set()
    pending = [base]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        names.update(getattr(kind, "adapter_layer_names", ()))
    assert {"lora_A", "hada_w1_a", "vera_lambda_b"} <= names
    assert [name for name in sorted(names) if not changes_layer(f"{name}.default")] == []
