"""Pruned, normalised and parametrised weights: a part alone is never taken for the layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from tests.checkpoints.refusals import refusal
from unarg_callback.checkpoints import read_layer


def pruned(head: nn.Linear) -> None:
    prune.l1_unstructured(head, "weight", amount=0.5)


def spectral(head: nn.Linear) -> None:
    nn.utils.spectral_norm(head)


CASES: dict[str, tuple[Callable[[nn.Linear], object], str]] = {
    "pruned": (pruned, "prune.remove"),
    "spectral norm": (spectral, "remove_spectral_norm"),
    "parametrised spectral norm": (parametrizations.spectral_norm, "remove_parametrizations"),
    "parametrised weight norm": (parametrizations.weight_norm, "remove_parametrizations"),
    "orthogonal": (parametrizations.orthogonal, "remove_parametrizations"),
}


def saved(path: Path, *, bias: bool, change: Callable[[nn.Linear], object], embed: bool) -> Path:
    head = nn.Linear(4, 30, bias=bias)
    change(head)
    modules = {"embed": nn.Embedding(20, 4), "fc": head} if embed else {"fc": head}
    torch.save(nn.ModuleDict(modules).state_dict(), path)
    return path


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("embed", [True, False])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_parts_are_refused(tmp_path: Path, case: str, bias: bool, embed: bool) -> None:
    change, advice = CASES[case]
    path = saved(tmp_path / "a.pt", bias=bias, change=change, embed=embed)
    assert advice in refusal(path)
    parts = [n for n, t in torch.load(path).items() if t.ndim == 2 and n != "embed.weight"]
    assert parts
    for name in parts:
        assert advice in refusal(path, weight=name)


def test_pruned_for_good_it_is_read(tmp_path: Path) -> None:
    head = nn.Linear(4, 30)
    pruned(head)
    plain = head.weight.detach().clone()
    prune.remove(head, "weight")
    torch.save(nn.ModuleDict({"fc": head}).state_dict(), tmp_path / "a.pt")
    assert torch.equal(read_layer(tmp_path / "a.pt").weight, plain)


@pytest.mark.parametrize("tied", [True, False])
def test_a_pruned_bias_is_not_forgotten(tmp_path: Path, tied: bool) -> None:
    head = nn.Linear(4, 30)
    prune.l1_unstructured(head, "bias", amount=0.5)
    path = tmp_path / "a.pt"
    twin = {"embed.weight": head.weight} if tied else {}
    torch.save({**twin, **{f"fc.{n}": t for n, t in head.state_dict().items()}}, path)
    assert "prune.remove" in refusal(path)
    assert "prune.remove" in refusal(path, bias="fc.bias_orig")


def test_a_pruned_parameter_of_another_name(tmp_path: Path) -> None:
    module = nn.Module()
    module.table = nn.Parameter(torch.randn(30, 4))
    prune.random_unstructured(module, "table", amount=0.5)
    torch.save(module.state_dict(), tmp_path / "a.pt")
    assert "prune.remove" in refusal(tmp_path / "a.pt")
    assert "prune.remove" in refusal(tmp_path / "a.pt", weight="table_mask")


def test_a_name_alone_is_no_part(tmp_path: Path) -> None:
    torch.save({"road_orig.weight": torch.ones(9, 4)}, tmp_path / "a.pt")
    assert read_layer(tmp_path / "a.pt").classes == 9


def test_a_bias_of_two_dimensions_is_not_forgotten(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(9, 4), "fc.bias": torch.ones(3, 3)}, tmp_path / "a.pt")
    assert "fc.bias (3, 3)" in refusal(tmp_path / "a.pt")
    assert read_layer(tmp_path / "a.pt", bias="none").bias is None


def test_fairseq_with_a_pruned_projection(tmp_path: Path) -> None:
    head = nn.Linear(4, 30, bias=False)
    pruned(head)
    model = {f"decoder.output_projection.{n}": t for n, t in head.state_dict().items()}
    model["decoder.embed_tokens.weight"] = torch.ones(30, 4)
    args = {"share_decoder_input_output_embed": True}
    torch.save({"args": args, "model": model}, tmp_path / "a.pt")
    assert "prune.remove" in refusal(tmp_path / "a.pt")
