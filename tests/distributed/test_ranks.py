"""What several processes say to each other, in two real ones."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from tests.distributed.processes import in_processes
from unarg_callback.distributed.ranks import RankError, Ranks


def said() -> dict[str, Any]:
    ranks = Ranks.join()
    own = torch.tensor([float(ranks.rank), -float(ranks.rank)])
    heard = {
        "size": ranks.size,
        "broadcast": ranks.broadcast(f"from {ranks.rank}"),
        "gather": ranks.gather(ranks.rank),
        "maximum": ranks.maximum(own).tolist(),
        "total": ranks.total(own).tolist(),
        "together": ranks.together(lambda: ranks.rank),
    }
    try:
        ranks.together(lambda: 1 // ranks.rank)
    except (RankError, ZeroDivisionError) as cause:
        heard["failure"] = f"{type(cause).__name__}: {cause}"
    ranks.close()
    heard["closed"] = (ranks.alone, ranks.gather(1))
    return heard


def test_two_processes() -> None:
    first, second = in_processes(said)
    for heard in (first, second):
        assert heard["size"] == 2
        assert heard["broadcast"] == "from 0"
        assert heard["gather"] == [0, 1]
        assert heard["maximum"] == [1.0, 0.0]
        assert heard["total"] == [1.0, -1.0]
        assert heard["closed"] == (True, [1])
    assert (first["together"], second["together"]) == (0, 1)
    assert first["failure"].startswith("ZeroDivisionError")
    assert second["failure"].startswith("RankError: rank 0 failed: ZeroDivisionError")


def test_one_process_is_alone() -> None:
    ranks = Ranks.join()
    assert (ranks.rank, ranks.size, ranks.first, ranks.alone) == (0, 1, True, True)
    assert ranks.broadcast(3) == 3
    values = torch.ones(2)
    assert ranks.maximum(values) is values
    assert ranks.total(values) is values
    with pytest.raises(ZeroDivisionError):
        ranks.together(lambda: 1 // 0)


def test_a_group_stays_in_its_process() -> None:
    assert pickle.loads(pickle.dumps(Ranks())).alone
