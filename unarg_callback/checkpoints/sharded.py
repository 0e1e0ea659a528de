"""Models in shards: ``model.safetensors.index.json`` and ``pytorch_model.bin.index.json``."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from unarg_callback.checkpoints.folders import inside, read_json
from unarg_callback.checkpoints.safetensors_file import open_safetensors
from unarg_callback.checkpoints.tensor_file import Entry, TensorFile, shown
from unarg_callback.checkpoints.torch_file import open_torch
from unarg_callback.errors import CheckpointError


def open_sharded(path: Path) -> TensorFile:
    """List the tensors of all shards that an index names; data is read only by ``load``.

    Shards are read from the index's own folder alone.

    Args:
        path: the index, a JSON object with a ``weight_map``.

    Raises:
        CheckpointError: the index or a shard is damaged or missing, a shard lacks what the index
            says that it holds, or a shard's name leaves the folder.
    """
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
        raise CheckpointError(
            f"{path} has no weight_map from tensors to files; expected the index of a model in "
            "shards, as transformers writes it"
        )
    shards = {shard: _open(path, shard) for shard in dict.fromkeys(places.values())}
    entries: list[Entry] = []
    for name, shard in places.items():
        entry = shards[shard].by_name.get(name)
        if entry is None:
            raise CheckpointError(
                f"{path} says that {shown(shard)} holds {shown(name)}, which it doesn't; expected "
                "the shards that were saved with the index"
            )
        entries.append(entry)

    def load(name: str) -> Tensor:
        return shards[places[name]].load(name)

    def head(name: str) -> bytes:
        return shards[places[name]].head(name)

    files = tuple(shard.path for shard in shards.values())
    return TensorFile(path, tuple(entries), load, head, torch_names=True, files=files)


def _open(index: Path, shard: str) -> TensorFile:
    path = inside(index, shard)
    if path.suffix == ".json":
        raise CheckpointError(
            f"{index} says that {shown(shard)} holds tensors, but it is JSON; expected the names "
            "of the shards, .safetensors or .bin"
        )
    return open_safetensors(path) if path.suffix == ".safetensors" else open_torch(path)
