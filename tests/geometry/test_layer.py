from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from unarg_callback import LayerError, OutputLayer
from unarg_callback.geometry.layer import parse_ids

THREE = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0, 2.0], "two dimensions"),
        ([[[1.0]]], "two dimensions"),
        (1.0, "two dimensions"),
        (np.zeros((0, 3)), "at least one class"),
        (np.zeros((3, 0)), "at least one class"),
        (np.array([["a", "b"]]), "can't be read"),
        ([[1.0, 2.0], [3.0]], "can't be read"),
        (np.array([[True, False]]), "real numbers"),
        (np.array([[1j, 2.0]]), "real numbers"),
        (np.array([[2**53 + 1, 0]]), "2\\*\\*53"),
        (np.array([[-(2**53) - 1, 0]]), "2\\*\\*53"),
        (np.array([[1.0, np.nan]]), "NaN or inf"),
        (np.array([[1.0, -np.inf]]), "NaN or inf"),
    ],
)
def test_weights_that_are_none_are_refused(weight: ArrayLike, words: str) -> None:
    with pytest.raises(LayerError, match=words) as caught:
        OutputLayer(weight)
    assert "weight" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ([1.0, 2.0], "expected \\(3,\\)"),
        (np.zeros((3, 3)), "expected \\(3,\\)"),
        (np.zeros((1, 1, 3)), "expected \\(3,\\)"),
        (0.0, "expected \\(3,\\)"),
        ([0.0, np.nan, 0.0], "NaN or inf"),
        ([0.0, np.inf, 0.0], "NaN or inf"),
        (["a", "b", "c"], "can't be read"),
    ],
)
def test_biases_that_do_not_fit_are_refused(bias: ArrayLike, words: str) -> None:
    with pytest.raises(LayerError, match=words) as caught:
        OutputLayer(THREE, bias)
    assert "bias" in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3)])
def test_a_bias_of_any_shape_is_one_a_class(shape: tuple[int, ...]) -> None:
    layer = OutputLayer(THREE, np.array([1.0, 2.0, 3.0]).reshape(shape))
    assert layer.biases(slice(None)).tolist() == [1, 2, 3]
    assert layer.biases(torch.tensor([2, 0])).tolist() == [3, 1]


def test_no_bias_is_zero() -> None:
    layer = OutputLayer(THREE)
    assert layer.biases(np.array([0, 2])).tolist() == [0, 0]
    assert layer.biases(slice(1, None)).dtype == torch.float64


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"], "abc"])
def test_names_that_do_not_fit_are_refused(names: list[str] | str) -> None:
    with pytest.raises(LayerError, match="name"):
        OutputLayer(THREE, names=names)


def test_names_are_text_or_the_id() -> None:
    assert OutputLayer(THREE, names=["a", "b", "c"]).name(1) == "b"
    assert OutputLayer(THREE).name(1) == "1"


@pytest.mark.parametrize("excluded", [[3], [-1], [0, 7]])
def test_excluded_ids_out_of_range_are_refused(excluded: list[int]) -> None:
    with pytest.raises(LayerError, match="out of range; expected 0 to 2"):
        OutputLayer(THREE, excluded=excluded)


def test_excluded_rows_may_hold_anything() -> None:
    weight = np.array(THREE)
    weight[1] = np.nan
    layer = OutputLayer(weight, [0.0, np.inf, 0.0], excluded=[1, 1])
    assert layer.excluded == (1,)
    assert layer.active.tolist() == [0, 2]
    with pytest.raises(LayerError, match=r"weight has NaN or inf in 1 class\(es\): \[1\]"):
        OutputLayer(weight, excluded=[0])


def test_rows_that_are_not_finite_are_named_and_counted() -> None:
    weight = np.ones((10, 2))
    weight[2:9] = np.nan
    with pytest.raises(LayerError, match=r"7 class\(es\): \[2, 3, 4, 5, 6\] and 2 more"):
        OutputLayer(weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_upcasts_are_exact_and_storage_is_kept(dtype: torch.dtype) -> None:
    stored = torch.randn(5, 3, dtype=torch.float64, generator=torch.manual_seed(0)).to(dtype)
    layer = OutputLayer(stored.requires_grad_(), stored[:, 0])
    assert layer.weight.dtype == dtype
    assert not layer.rows(slice(None)).requires_grad
    assert layer.rows(slice(None)).tolist() == stored.tolist()
    assert layer.biases(torch.tensor([4])).tolist() == [stored[4, 0].item()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integers_are_kept_exactly(dtype: type) -> None:
    layer = OutputLayer(np.array([[100, 1], [2, 3]], dtype=dtype))
    assert layer.rows(slice(None)).tolist() == [[100, 1], [2, 3]]
    assert OutputLayer(np.array([[2**53]])).rows(slice(None)).item() == 2**53


def test_eight_bit_floats_are_kept_exactly() -> None:
    stored = torch.tensor([[1.5, -0.25], [448.0, 0.0]]).to(torch.float8_e4m3fn)
    assert OutputLayer(stored).rows(slice(None)).tolist() == [[1.5, -0.25], [448.0, 0.0]]


def test_moving_to_its_own_device_is_nothing() -> None:
    layer = OutputLayer(THREE)
    assert layer.to("cpu") is layer


@pytest.mark.parametrize(
    ("text", "ids"),
    [("", ()), (" ", ()), ("3", (3,)), ("5,0,10-12,11", (0, 5, 10, 11, 12)), (" 1 , 2-2 ", (1, 2))],
)
def test_ids_are_read(text: str, ids: tuple[int, ...]) -> None:
    assert parse_ids(text) == ids


@pytest.mark.parametrize(
    "text", ["a", "1,", "-1", "3-1", "1-", "1--2", "1.5", "0-999999999", "9" * 30, "²"]
)
def test_ids_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(LayerError, match="can't be read as class ids"):
        parse_ids(text)
