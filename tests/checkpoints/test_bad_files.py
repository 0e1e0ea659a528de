"""Files that hold no readable layer: one line that says so, and nothing in them is executed."""

import io
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from unarg_callback import CheckpointError, UnargError
from unarg_callback.checkpoints import read_layer

W = np.arange(40, dtype=np.float32).reshape(10, 4)
B = np.zeros(10, dtype=np.float32)


class Malicious:
    """Leaves a canary when unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.canary,)


def refusal(path: Path, **options: Any) -> str:
    """The message with which the file is refused, one line long."""
    with pytest.raises(CheckpointError) as caught:
        read_layer(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def good_file(folder: Path, suffix: str) -> Path:
    path = folder / f"good{suffix}"
    tensors = {"out.weight": torch.from_numpy(W), "out.bias": torch.from_numpy(B)}
    if suffix == ".npz":
        np.savez_compressed(path, W=W, b=B)
    elif suffix == ".safetensors":
        save_file(tensors, path)
    elif suffix == ".pth":
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
    else:
        torch.save({"state_dict": tensors}, path)
    return path


SUFFIXES = [".npz", ".pt", ".pth", ".ckpt", ".bin", ".safetensors"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_good_file_is_read(tmp_path: Path, suffix: str) -> None:
    layer = read_layer(good_file(tmp_path, suffix))
    assert np.array_equal(layer.weight.numpy(), W)
    assert layer.bias is not None


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kept", [0.01, 0.1, 0.5, 0.9, 0.999])
def test_truncated(tmp_path: Path, suffix: str, kept: float) -> None:
    content = good_file(tmp_path, suffix).read_bytes()
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(content[: max(1, int(kept * len(content)))])
    refusal(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_bytes_are_refused_or_read(tmp_path: Path, suffix: str) -> None:
    content = good_file(tmp_path, suffix).read_bytes()
    path = tmp_path / f"hit{suffix}"
    chance = random.Random(0)
    for _ in range(500):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 1, 3])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read_layer(path)
        except UnargError as problem:  # LayerError where a value is now NaN.
            assert "\n" not in str(problem)  # noqa: PT017 (to be read is right as well)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy", ".txt"])
def test_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"empty{suffix}"
    path.touch()
    assert "is empty" in refusal(path)


def test_missing(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none.npz")


def test_folder(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_not_a_regular_file() -> None:
    assert "not a regular file" in refusal(Path("/dev/zero"))


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy"])
def test_another_format(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 10)
    refusal(path)


def test_unknown_suffix(tmp_path: Path) -> None:
    path = tmp_path / "layer.csv"
    path.write_text("1,2,3\n")
    assert ".safetensors" in refusal(path)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy", ".pkl"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_malicious_pickle(tmp_path: Path, suffix: str, protocol: int) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / f"evil{suffix}"
    path.write_bytes(pickle.dumps({"W": Malicious(canary), "b": B}, protocol=protocol))
    assert "expected" in refusal(path)
    assert not canary.exists()


@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".bin"])
@pytest.mark.parametrize("as_zip", [True, False])
def test_malicious_checkpoint(tmp_path: Path, suffix: str, as_zip: bool) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / f"evil{suffix}"
    content = {"state_dict": {"weight": torch.ones(5, 2)}, "extra": Malicious(canary)}
    torch.save(content, path, _use_new_zipfile_serialization=as_zip)
    message = refusal(path)
    assert "never loaded" in message
    assert "torch.save(model.state_dict()" in message
    assert not canary.exists()


def test_malicious_npz(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / "evil.npz"
    np.savez(path, W=np.array([Malicious(canary)], dtype=object))
    message = refusal(path)
    assert "pickled objects (W)" in message
    assert "numpy.savez" in message
    refusal(path, weight="W")
    assert not canary.exists()


def test_objects_beside_the_layer_are_left_alone(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / "mixed.npz"
    np.savez(path, W=W, b=B, meta=np.array([Malicious(canary)], dtype=object))
    assert read_layer(path).classes == 10
    refusal(path, bias="meta")
    assert not canary.exists()


def test_malicious_npy(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = tmp_path / "evil.npy"
    np.save(path, np.array([Malicious(canary)], dtype=object))
    assert "numpy.savez" in refusal(path)
    assert not canary.exists()


def test_whole_module(tmp_path: Path) -> None:
    path = tmp_path / "module.pt"
    torch.save(torch.nn.Linear(4, 10), path)
    assert "torch.nn.modules.linear.Linear" in refusal(path)


def test_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "script.pt"
    with pytest.warns(DeprecationWarning, match="deprecated"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(4, 10)), str(path))
    assert "TorchScript" in refusal(path)


@pytest.mark.parametrize("content", [torch.ones(5, 2), [torch.ones(5, 2)], 3])
def test_checkpoint_that_is_no_dict(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "odd.pt"
    torch.save(content, path)
    assert type(content).__name__ in refusal(path)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_nothing_inside(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bare{suffix}"
    if suffix == ".npz":
        np.savez(path)
    elif suffix == ".pt":
        torch.save({}, path)
    else:
        save_file({}, path)
    refusal(path)


def test_huge_safetensors_header(tmp_path: Path) -> None:
    path = tmp_path / "header.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + b'{"W":{}}')
    assert "header too large" in refusal(path)


def _npz_with(path: Path, shape: tuple[int, ...], data: bytes) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("W.npy", header.getvalue() + data)


@pytest.mark.parametrize("shape", [(2**40, 2**20), (10, 4), (2**62, 2**62)])
def test_npz_header_that_promises_too_much(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "promise.npz"
    _npz_with(path, shape, b"\0" * 8)
    assert "8 are stored" in refusal(path)


def test_npz_compressed_as_numpy_never_does(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("W.npy", b"\0" * 10**7)
    assert "compressed in a way" in refusal(path)


def test_checkpoint_compressed_as_torch_never_does(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with (
        zipfile.ZipFile(good_file(tmp_path, ".pt")) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for info in source.infolist():
            archive.writestr(info.filename, source.read(info))
    assert "compressed" in refusal(path)


def test_tensor_larger_than_its_data(tmp_path: Path) -> None:
    path = tmp_path / "expanded.pt"
    torch.save({"weight": torch.ones(1).expand(10**9, 10**6)}, path)
    assert "only 4 bytes of data" in refusal(path)


def test_tensor_that_reaches_beyond_its_data(tmp_path: Path) -> None:
    path = tmp_path / "beyond.pt"
    with (
        zipfile.ZipFile(good_file(tmp_path, ".pt")) as source,
        zipfile.ZipFile(path, "w") as archive,
    ):
        for info in source.infolist():
            # The pickled shape (10, 4) becomes (255, 255); the data stays.
            content = source.read(info).replace(b"K\nK\x04\x86", b"K\xffK\xff\x86")
            archive.writestr(info.filename, content)
    refusal(path)


def test_dict_that_holds_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.pt"
    content: dict[str, Any] = {"weight": torch.ones(5, 2)}
    content["self"] = content
    torch.save(content, path)
    assert read_layer(path).classes == 5
