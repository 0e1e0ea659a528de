"""Exactly one layer, its bias and its orientation; else what could be meant, and how to say it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from unarg_callback import CheckpointError
from unarg_callback.checkpoints import Orientation, locate_layer, read_layer

RNG = np.random.default_rng(0)


def npz(folder: Path, **shapes: tuple[int, ...]) -> Path:
    path = folder / "layer.npz"
    arrays: dict[str, Any] = {n: RNG.standard_normal(shape) for n, shape in shapes.items()}
    np.savez(path, **arrays)
    return path


def refusal(path: Path, **options: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def array(path: Path, name: str) -> NDArray[np.float64]:
    with np.load(path) as archive:
        return archive[name]


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        ("W", "b"),
        ("w", "b"),
        ("W", "bias"),
        ("weight", "bias"),
        ("weights", "biases"),
        ("kernel", "bias"),
        ("out.weight", "out.bias"),
        ("out/kernel", "out/bias"),
        ("decoder_ff_logit_out_W", "decoder_ff_logit_out_b"),
        ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"),
    ],
)
def test_bias_by_name(tmp_path: Path, weight: str, bias: str) -> None:
    located = locate_layer(npz(tmp_path, **{weight: (10, 4), bias: (10,)}))
    assert located.bias is not None
    assert located.bias.name == bias


def test_bias_length_settles_the_orientation(tmp_path: Path) -> None:
    path = npz(tmp_path, W=(4, 10), b=(10,))
    assert np.array_equal(read_layer(path).weight.numpy(), array(path, "W").T)
    path = npz(tmp_path, W=(4, 10), b=(4,))
    assert read_layer(path).classes == 4


def test_bias_outweighs_the_convention_of_torch(tmp_path: Path) -> None:
    # Conv1D of the GPT-2 code keeps (features, classes) under the same name.
    torch.save({"head.weight": torch.ones(4, 10), "head.bias": torch.ones(10)}, tmp_path / "a.pt")
    assert read_layer(tmp_path / "a.pt").classes == 10


def test_npz_without_bias_asks_for_the_orientation(tmp_path: Path) -> None:
    path = npz(tmp_path, W=(10, 4))
    message = refusal(path)
    assert "--orientation classes-first or --orientation features-first" in message
    assert "W (10, 4)" in message


@pytest.mark.parametrize(("orientation", "classes"), [("classes-first", 10), ("features-first", 4)])
def test_orientation_as_asked(tmp_path: Path, orientation: Orientation, classes: int) -> None:
    layer = read_layer(npz(tmp_path, W=(10, 4)), orientation=orientation)
    assert layer.classes == classes


def test_square_with_bias_asks_for_the_orientation(tmp_path: Path) -> None:
    path = npz(tmp_path, W=(5, 5), b=(5,))
    assert "its bias would fit either way" in refusal(path)
    features_first = read_layer(path, orientation="features-first")
    assert np.array_equal(features_first.weight.numpy(), array(path, "W").T)


def test_orientation_against_the_bias_is_refused(tmp_path: Path) -> None:
    message = refusal(npz(tmp_path, W=(10, 4), b=(10,)), orientation="features-first")
    assert "has 4 classes" in message
    assert "has 10" in message


def test_bias_that_fits_neither_dimension(tmp_path: Path) -> None:
    message = refusal(npz(tmp_path, W=(10, 4), b=(7,)))
    assert "7 values" in message
    assert "10 rows and 4 columns" in message


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_torch_convention_without_bias(tmp_path: Path, suffix: str) -> None:
    from safetensors.torch import save_file

    path = tmp_path / f"a{suffix}"
    tensors = {"lm_head.weight": torch.ones(10, 4)}
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    assert read_layer(path).classes == 10


def test_torch_convention_does_not_cover_other_names(tmp_path: Path) -> None:
    torch.save({"decoder.embed_out": torch.ones(10, 4)}, tmp_path / "a.pt")
    assert "--orientation" in refusal(tmp_path / "a.pt")


def test_fewer_classes_than_features_can_be_meant_only_with_a_bias(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(4, 10), "bias": torch.ones(4)}, tmp_path / "a.pt")
    assert read_layer(tmp_path / "a.pt").classes == 4
    torch.save({"weight": torch.ones(4, 10)}, tmp_path / "b.pt")
    assert "no output layer" in refusal(tmp_path / "b.pt")
    assert read_layer(tmp_path / "b.pt", weight="weight").classes == 4


def test_ambiguity_lists_the_candidates(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 50))
    torch.save(model.state_dict(), tmp_path / "a.pt")
    message = refusal(tmp_path / "a.pt")
    assert "2 layers that could be meant" in message
    assert "2.weight (50, 16) with 2.bias, 0.weight (16, 8) with 0.bias" in message
    assert "--weight NAME" in message
    assert read_layer(tmp_path / "a.pt", weight="2.weight").classes == 50


def test_long_list_is_capped(tmp_path: Path) -> None:
    model = nn.Sequential(*[nn.Linear(3, 5 + i) for i in range(20)])
    torch.save(model.state_dict(), tmp_path / "a.pt")
    message = refusal(tmp_path / "a.pt")
    assert message.count(".bias") == 12
    assert "and 8 more" in message


def test_unknown_weight_names_what_there_is(tmp_path: Path) -> None:
    message = refusal(npz(tmp_path, W=(10, 4), b=(10,)), weight="w_out")
    assert "no tensor w_out for --weight" in message
    assert "W (10, 4)" in message


def test_end_of_a_name_is_enough_if_unique(tmp_path: Path) -> None:
    path = npz(tmp_path, **{"a.head.weight": (10, 4), "a.head.bias": (10,), "b.bias": (10,)})
    assert locate_layer(path, weight="head.weight").weight.name == "a.head.weight"
    assert "fits 2 tensors" in refusal(path, bias="bias")


def test_named_weight_of_the_wrong_kind(tmp_path: Path) -> None:
    assert "two dimensions" in refusal(npz(tmp_path, W=(10, 4, 2)), weight="W")
    np.savez(tmp_path / "text.npz", W=np.array([["a", "b"]]))
    assert "<U1" in refusal(tmp_path / "text.npz", weight="W")


def test_named_bias(tmp_path: Path) -> None:
    path = npz(tmp_path, W=(10, 4), b=(10,), c=(10,))
    located = locate_layer(path, bias="c")
    assert located.bias is not None
    assert located.bias.name == "c"
    assert "one dimension" in refusal(path, bias="W")
    assert "no tensor d for --bias" in refusal(path, bias="d")


def test_named_bias_settles_the_weight(tmp_path: Path) -> None:
    path = npz(tmp_path, **{"a.weight": (10, 4), "b.weight": (7, 4), "final": (1, 10)})
    assert locate_layer(path, bias="final").weight.name == "a.weight"
    assert "that final (10,) fits" in refusal(npz(tmp_path, W=(4, 3), final=(10,)), bias="final")


def test_bias_none(tmp_path: Path) -> None:
    path = npz(tmp_path, W=(10, 4), b=(10,))
    assert "--orientation" in refusal(path, bias="none")
    assert read_layer(path, bias="none", orientation="classes-first").bias is None


def test_bias_of_another_name_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "marian.pt"
    torch.save({"lm_head.weight": torch.ones(9, 4), "final_logits_bias": torch.ones(1, 9)}, path)
    message = refusal(path)
    assert "final_logits_bias (1, 9)" in message
    assert "--bias NAME or --bias none" in message
    assert read_layer(path, bias="final_logits_bias").bias is not None
    assert read_layer(path, bias="none").bias is None


def test_unnamed_arrays_are_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", np.ones((10, 4)), np.ones(10))
    assert "arr_1 (10,) would fit" in refusal(tmp_path / "a.npz")
    assert read_layer(tmp_path / "a.npz", bias="arr_1").classes == 10


def test_named_tied_weight_gets_the_bias_of_its_twin(tmp_path: Path) -> None:
    tied = torch.randn(9, 4)
    torch.save(
        {"embed.weight": tied, "out.weight": tied, "out.bias": torch.ones(9)}, tmp_path / "a.pt"
    )
    assert read_layer(tmp_path / "a.pt", weight="embed.weight").bias is not None


def test_tied_weights_with_two_biases_are_ambiguous(tmp_path: Path) -> None:
    tied = torch.randn(9, 4)
    tensors = {
        "a.weight": tied,
        "b.weight": tied,
        "a.bias": torch.ones(9),
        "b.bias": -torch.ones(9),
    }
    torch.save(tensors, tmp_path / "a.pt")
    assert "2 layers" in refusal(tmp_path / "a.pt")


def test_parts_of_a_weight_are_refused(tmp_path: Path) -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 10))
    torch.save(module.state_dict(), tmp_path / "a.pt")
    assert "remove_parametrizations" in refusal(tmp_path / "a.pt")
    name = "parametrizations.weight.original1"
    assert "remove_parametrizations" in refusal(tmp_path / "a.pt", weight=name)


def test_quantised_weight_is_refused(tmp_path: Path) -> None:
    tensors = {
        "head.weight": torch.ones(9, 4, dtype=torch.int8),
        "head.weight_scale": torch.ones(9),
    }
    torch.save(tensors, tmp_path / "a.pt")
    assert "dequantise" in refusal(tmp_path / "a.pt")


def test_names_cannot_break_the_line(tmp_path: Path) -> None:
    torch.save({"a\n\x1b[31mb.weight": torch.ones(9, 4, 2)}, tmp_path / "a.pt")
    assert "a\\n\\x1b[31mb.weight" in refusal(tmp_path / "a.pt")
