"""Run a function in two processes that are joined by gloo, and bring back what each returned."""

from __future__ import annotations

import os
import pickle
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_processes(function: Callable[..., Any], *arguments: Any, size: int = 2) -> list[Any]:
    """Return ``[function(*arguments) on rank 0, ... on rank 1, ...]``.

    Args:
        function: at the top of a module, as it is imported in each process.
        arguments: the same for all; they are pickled.
        size: number of processes.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        context.Process(target=_run, args=(rank, size, port, ends[rank][1], function, arguments))
        for rank in range(size)
    ]
    for process, (_, theirs) in zip(processes, ends, strict=True):
        process.start()
        theirs.close()
    answers = [_received(mine) for mine, _ in ends]
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
    failed = [f"rank {at}: {text}" for at, (fine, text) in enumerate(answers) if not fine]
    assert not failed, "\n".join(failed)
    return [answer for _, answer in answers]


def _send(answer: Connection, fine: bool, value: Any) -> None:
    # Torch would send tensors as handles of memory that ends with this process.
    answer.send_bytes(pickle.dumps((fine, value)))


def _received(mine: Connection) -> tuple[bool, Any]:
    try:
        answer: tuple[bool, Any] = (False, "silent for ten minutes")
        if mine.poll(600):
            answer = pickle.loads(mine.recv_bytes())
    except EOFError:
        return False, "it ended without an answer"
    return answer


def _run(
    rank: int,
    size: int,
    port: int,
    answer: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        _send(answer, True, function(*arguments))
    except BaseException:
        _send(answer, False, traceback.format_exc())
        raise
    dist.destroy_process_group()
