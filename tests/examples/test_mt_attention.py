"""Sparse attention in the translation example, and what of it is logged."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

REASON = "the extra `examples` isn't installed"
pytest.importorskip("sentencepiece", reason=REASON)
pytest.importorskip("sacrebleu", reason=REASON)
pytest.importorskip("jsonargparse", reason=REASON)
pytest.importorskip("jupyterlab_language_pack_fr_FR", reason=REASON)

import mt.heat_map
from mt.attention_log import cross_attention, nearest, pieces, support, unpadded
from mt.data import BOS, EOS, PAD, Batch
from mt.heat_map import Sentence, figure, image
from mt.model import Translator
from unarg_callback.heads import SparseAttention

CONFIGS = Path(__file__).parents[2] / "configs"


def translator(**options: Any) -> Translator:
    torch.manual_seed(0)
    return Translator(50, 60, width=16, output_width=6, heads=2, layers=2, **options).eval()


def batch() -> Batch:
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD]])
    return Batch(source, torch.tensor([[BOS, 4, 5, EOS], [BOS, 6, EOS, PAD]]))


def test_without_the_option_nothing_changes() -> None:
    plain, sparse = translator(), translator(attention="sparsegen_lin")
    attentions = [layer.multihead_attn for layer in plain.decoder.layers]
    assert all(type(attention) is nn.MultiheadAttention for attention in attentions)
    other = dict(sparse.named_parameters())
    for name, parameter in plain.named_parameters():
        assert "multihead_attn" in name or torch.equal(other[name], parameter)


@pytest.mark.parametrize("name", ["softmax", "sparsegen_lin", "sparsehourglass"])
def test_the_decoder_attends_through_the_map(name: str) -> None:
    model = translator(attention=name, attention_lambda=0.9, attention_q=0.1)
    assert all(isinstance(layer.multihead_attn, SparseAttention) for layer in model.decoder.layers)
    assert model(*batch()).isfinite().all()
    weights = cross_attention(model, batch())
    assert [tuple(layer.shape) for layer in weights] == [(2, 2, 3, 5)] * 2
    for layer in weights:
        torch.testing.assert_close(layer.sum(-1), torch.ones(2, 2, 3))
        assert (layer[1, ..., 3:] == 0).all()


def test_a_learned_lambda_is_one_a_head() -> None:
    model = translator(attention="sparsegen_lin", attention_learnable=True)
    names = [name for name, _ in model.named_parameters() if name.endswith("map.gap.raw")]
    assert len(names) == 2
    assert all(model.get_parameter(name).shape == (2, 1, 1) for name in names)


def test_weights_of_pytorchs_attention_are_found_too_and_no_hook_stays() -> None:
    model = translator()
    expected = model(*batch())
    weights = cross_attention(model, batch())
    assert [tuple(layer.shape) for layer in weights] == [(2, 2, 3, 5)] * 2
    assert (weights[0][0] > 0).all()
    assert torch.equal(model(*batch()), expected)
    assert not model.decoder.layers[0].multihead_attn._forward_pre_hooks


def test_pieces_are_named_without_padding() -> None:
    class Vocabulary:
        def id_to_piece(self, i: int) -> str:
            return f"p{i}"

    assert pieces(Vocabulary(), torch.tensor([BOS, 7, EOS, PAD])) == ["<s>", "p7", "</s>"]


def test_support_counts_nonzeros_where_there_is_a_target() -> None:
    # 2 heads, 3 target tokens, 5 source tokens; the second pair has one target token less.
    weights = torch.zeros(2, 2, 3, 5)
    weights[..., 0] = 1.0
    weights[0, 0, 0] = 0.2
    weights[1, :, 2] = 0.2
    nonzero, lengths = support([weights, weights > 0], batch())
    assert nonzero.tolist() == [[3, 1, 1, 1, 1]] * 2
    assert lengths.tolist() == [5, 5, 5, 3, 3]


def test_in_the_image_only_0_is_white_and_1_is_black() -> None:
    weights = torch.tensor([[[1.0, 0.0]], [[1e-9, 0.5]]])
    drawn = image(weights)
    assert drawn.shape == (1, 12 + 2, 2 * (24 + 2))
    assert drawn[0, 6, [6, 20, 32, 45]].tolist() == pytest.approx([0.0, 1.0, 0.8, 0.4])


def drawn_colours(axes: Any) -> Any:
    (shown,) = axes.images
    return shown.to_rgba(shown.get_array())[..., :3]


def test_the_figure_has_a_panel_a_map_and_a_row_a_sentence_with_names() -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    first = Sentence(["▁a", "b"], ["x", r"$\foo$", "z"], list(torch.rand(2, 3, 2)))
    second = Sentence(["c"], ["u"], list(torch.rand(2, 1, 1)))
    drawn = figure(["one", "two"], [first, second], columns=2)
    *panels, bar = drawn.axes
    assert [axes.get_title() for axes in panels] == ["one", "two"] * 2
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["_a", "b"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["x", r"$\foo$", "z"]
    assert [label.get_text() for label in panels[3].get_xticklabels()] == ["c"]
    assert "0 is white" in bar.get_ylabel()
    drawn.savefig(io.BytesIO())  # The dollars don't start a formula, which this one would break.


def test_panels_of_a_sentence_are_wrapped() -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    sentence = Sentence(["a"], ["x"], list(torch.rand(3, 1, 1)))
    *panels, _ = figure(["one", "two", "three"], [sentence], columns=2).axes
    grid = [axes.get_subplotspec() for axes in panels]
    assert [(at.rowspan.start, at.colspan.start) for at in grid] == [(0, 0), (0, 1), (1, 0)]


def test_in_the_figure_only_0_is_white_and_more_is_darker() -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    weights = torch.tensor([[0.0, 1e-9, 0.5, 1.0]])
    axes = figure(["map"], [Sentence(list("abcd"), ["x"], [weights])], columns=1).axes[0]
    zero, least, half, one = drawn_colours(axes)[0].mean(-1)
    assert axes.get_facecolor()[:3] == (1, 1, 1)
    assert zero in (0, 1)  # Masked: what is seen is the panel's white.
    assert axes.images[0].get_array().mask.tolist() == [[True, False, False, False]]
    assert 0.9 > least > half > one


@pytest.mark.parametrize("with_matplotlib", [True, False])
def test_a_config_line_trains_with_it_and_logs_it(
    with_matplotlib: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    import train_mt

    if with_matplotlib:
        pytest.importorskip("matplotlib", reason="the extra `plots` isn't installed")
    else:
        monkeypatch.setattr(mt.heat_map, "find_spec", lambda name: None)
    status = train_mt.main(
        ["--config", str(CONFIGS / "mt_small.yaml")]
        + ["--config", str(CONFIGS / "mt_sparse_attention.yaml")]
        + ["--workdir", str(tmp_path), "--data.vocabulary", "300", "--data.held_out", "10"]
        + ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3"]
        + ["--trainer.check_val_every_n_epoch", "1", "--trainer.enable_progress_bar", "false"]
        + ["--model.width", "16", "--model.output_width", "4", "--model.layers", "1"]
        + ["--model.attention_lambda", "0.9"]
    )
    assert status == 0
    events = EventAccumulator(str(next(tmp_path.rglob("events.out.tfevents.*")).parent))
    events.Reload()
    (support,) = [event.value for event in events.Scalars("attention/support/layer_0")]
    (length,) = [event.value for event in events.Scalars("attention/length")]
    assert 1 <= support < length
    assert events.Tags()["images"] == [f"attention/sentence_{i}/layer_0" for i in range(2)]


def test_the_pairs_nearest_to_a_length_are_drawn() -> None:
    assert unpadded(batch()) == [
        ([5, 6, 7, 8, EOS], [BOS, 4, 5, EOS]),
        ([9, 10, EOS], [BOS, 6, EOS]),
    ]
    pairs = [([7] * source, [7] * (target + 1)) for source, target in [(9, 9), (5, 6), (5, 5)]]
    assert nearest(pairs, tokens=5, number=2) == [pairs[2], pairs[1]]
    assert nearest(pairs, tokens=8, number=1) == [pairs[0]]
    assert len(nearest(pairs, tokens=5, number=9)) == 3
