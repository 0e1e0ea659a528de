"""Tensors that a weight is computed from: none of them alone is what the model multiplies with."""

from __future__ import annotations

import re

from unarg_callback.checkpoints.tensor_file import Entry, TensorFile

PLAIN = {"f16", "bf16", "f32", "f64", "float16", "bfloat16", "float32", "float64"}
"""Types, as the formats spell them in lower case, in which a weight is kept as it is."""

# PEFT's names, torchtune's (lora_a) and loralib's; the whole of a name between dots.
_OF_AN_ADAPTER = (
    r"(?:(?:poly_|supertuning_)?lora_\w+|lora_bias|hada_[tw]\d\w*|lokr_[tw]\d\w*|b?oft_\w+|ia3_l|"
    r"p?vera_(?:[AB]|lambda_\w+)|(?:vblora|fourierft|randlora|gralora|delora|waveft|tinylora|unilora|"
    r"glora|hira|psoft|adamss|supertuning|peanut|osf|_osf|trainable_tokens)_\w+|c3a_kernel|hra_u|"
    r"(?:miss|bone)_block|road_(?:alpha|theta)|shira_weight|deft_[PR]|frod_lambda_\w+|"
    r"lily_(?:[AB]|router)|poly_router|beft_bias|ln_tuning_layers|"
    r"shadow_(?:down|up|update_gate|update_transform|dropout))"
)
_ADAPTER = re.compile(rf"(?:^|\.){_OF_AN_ADAPTER}(?:\.|$)|(?:^|\.)base_layer\.(?:weight|bias)$")
_PARAMETRISED = re.compile(r"(?:^|\.)parametrizations\.|(?:^|\.)(?:weight|bias)_(?:[guv]|bar)$")
_PRUNED = re.compile(r"(?:^|[._/])(?:weight|bias)_(?:orig|mask)$")
_QUANTISED = re.compile(
    r"(?:^|\.)(?:(?:qweight|qzeros|weight_packed|weight_shape|W_q|codebooks|_packed_params)$|"
    r"weight_(?:fake_quant|quantizer|quant)\.)"
)
_CHANGES = re.compile(
    rf"(?:{_OF_AN_ADAPTER}(?:\.|$)|base_layer\.|token_adapter\.|parametrizations\.|"
    r"(?:weight|bias)_(?:[guv]|bar|orig|mask)$|weight_(?:fake_quant|quantizer|quant)\.)"
)
"""What, beside a weight, changes it; from the end of the layer's own name on."""
_COMPUTED = re.compile(r"parametrizations\.(weight|bias)\.|(weight|bias)_(?:[guv]|bar|orig|mask)$")
"""Of these, what a tensor is computed from, with that tensor's name."""
_WRAPPED = re.compile(r"(?:^|(?<=\.))(?:linear|to_wrap|original_module|base|wrapped|orig_layer)\.$")
_WHOLE = re.compile(
    r"base_layer\.weight$|weight_(?:orig|v|bar)$|weight\.original[01]?$|original_module\.weight$|"
    r"qweight$|weight_packed$|W_q$"
)
"""Parts that have the shape of the weight, or are packed so that they tell none."""
_SCALED = re.compile(
    r"scale|zero_point|zeros|absmax|quant_state|quant_map|SCB$|weight_format$|codebook|g_idx"
)


def is_part(file: TensorFile, entry: Entry) -> bool:
    """Whether it is one part that a weight is computed from, such as an adapter's factor."""
    return bool(_advice(file, entry))


def part_text(file: TensorFile, entry: Entry) -> str:
    """What it is, and how to get the weight itself; for :func:`is_part`."""
    return (
        f"{entry}, one part of a parametrised, adapted or quantised weight; merge the parts into "
        f"the plain weight ({_advice(file, entry)}) and save its state_dict"
    )


def _advice(file: TensorFile, entry: Entry) -> str:
    name = entry.name
    if _ADAPTER.search(name) or _replaced(file, name):
        return "for an adapter such as LoRA by merge_and_unload() of PEFT"
    if _PARAMETRISED.search(name) or _is_of_spectral_norm(file, name):
        return (
            "by torch.nn.utils.parametrize.remove_parametrizations, or remove_weight_norm or "
            "remove_spectral_norm of torch.nn.utils"
        )
    if _PRUNED.search(name) or _has_mask(file, name):
        return "by torch.nn.utils.prune.remove"
    return "dequantised, in float" if _QUANTISED.search(name) else ""


def _replaced(file: TensorFile, name: str) -> bool:
    """Whether PEFT keeps the layer only as what it was before it was trained as a whole."""
    stem, found, _ = name.rpartition("original_module.")
    return bool(found) and any(
        other.startswith(f"{stem}modules_to_save.") for other in file.by_name
    )


def _is_of_spectral_norm(file: TensorFile, name: str) -> bool:
    stem = name.removesuffix("_orig")
    return stem != name and f"{stem}_u" in file.by_name


def _has_mask(file: TensorFile, name: str) -> bool:
    """Whether pruning has split a parameter of another name than weight."""
    pairs = (("_orig", "_mask"), ("_mask", "_orig"))
    return any(name.endswith(a) and name.removesuffix(a) + b in file.by_name for a, b in pairs)


def changed_by(file: TensorFile, weight: Entry) -> Entry | None:
    """A tensor beside a weight that the model changes the weight or the bias with, if any.

    Such as the factors that loralib keeps beside a plain ``weight``, or a pruned ``bias``. What a
    parametrised or pruned tensor is computed from changes nothing where the file has the tensor
    too: modules keep only the parts, so it was saved as it is computed.
    """
    stems = [_stem(weight)]
    if _WRAPPED.search(stems[0]):
        stems.append(_WRAPPED.sub("", stems[0]))
    for entry in file.entries:
        for stem in stems:
            rest = entry.name[len(stem) :]
            if entry == weight or not entry.name.startswith(stem) or not _CHANGES.match(rest):
                continue
            computed = _COMPUTED.match(rest)
            if computed is None or stem + (computed[1] or computed[2]) not in file.by_name:
                return entry
    return None


def changes_layer(rest: str) -> bool:
    """Whether what follows a layer's name belongs to an adapter or a parametrisation."""
    return _CHANGES.match(rest) is not None


def is_low(entry: Entry) -> bool:
    """Whether it holds integers or floats of 8 bits, as quantised weights do."""
    return entry.dtype.lower().startswith(("i", "u", "f8", "float8"))


def is_integer(entry: Entry) -> bool:
    """Whether it holds integers."""
    return entry.dtype.lower().startswith(("i", "u"))


def scale_of(file: TensorFile, weight: Entry) -> Entry | None:
    """A scale that a quantised weight must be multiplied with, if one lies beside it."""
    if not is_low(weight):
        return None
    stem = _stem(weight)
    return next(
        (
            entry
            for entry in file.entries
            if entry != weight
            and entry.name.startswith(stem)
            and _SCALED.search(entry.name[len(stem) :])
        ),
        None,
    )


def beside(file: TensorFile, weight: Entry) -> Entry | None:
    """A tensor of the same layer that is neither its weight nor its bias, if there is one."""
    stem = _stem(weight)
    own = {weight.name, f"{stem}bias"}
    others = (e for e in file.entries if stem and e.name.startswith(stem) and e.name not in own)
    return next(others, None)


def hidden_weights(file: TensorFile) -> list[Entry]:
    """Weights that could be an output layer's, were they not in parts, packed or no numbers."""
    return [entry for entry in file.entries if entry.offered and _is_hidden(file, entry)]


def hidden_text(file: TensorFile, entry: Entry) -> str:
    """What one of :func:`hidden_weights` is."""
    if is_part(file, entry):
        return part_text(file, entry)
    return f"{entry} of {entry.dtype}, which is quantised or no plain numbers"


def _is_hidden(file: TensorFile, entry: Entry) -> bool:
    if len(entry.shape) != 2:
        return False
    rows, columns = entry.shape
    if is_part(file, entry):
        has_bias = f"{entry.name.rpartition('.')[0]}.bias" in file.by_name
        packed = _QUANTISED.search(entry.name) is not None
        return bool(_WHOLE.search(entry.name)) and (packed or has_bias or rows > columns)
    if not re.search(r"(?:^|[._/])(?:weight|kernel|W)$", entry.name):
        return False
    if scale_of(file, entry) is not None:
        return entry.length is not None  # Packed; others are candidates, and refused as such.
    return not entry.numeric and rows > columns


def _stem(weight: Entry) -> str:
    return weight.name.removesuffix("weight")
