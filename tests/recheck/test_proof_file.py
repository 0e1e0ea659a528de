"""Proof files that are damaged, of another kind, or made to do harm."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recheck.test_claims import WEIGHT, right_proofs
from unarg_callback import OutputLayer, verify
from unarg_callback.recheck import RecheckError, check_proofs, read_proof_file
from unarg_callback.recheck.proof_file import most_bytes


def member(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claiming(shape: str, data: bytes, descr: str = "'<f8'") -> bytes:
    """An .npy that says what its header says, whatever follows."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def write(path: Path, **changed: bytes) -> Path:
    members = {key: member(value) for key, value in right_proofs().items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in {**members, **changed}.items():
            archive.writestr(f"{key}.npy", content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(RecheckError) as cause:
        check_proofs(path, WEIGHT, None, excluded=[5])
    message = str(cause.value)
    assert path.name in message
    return message


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    layer = OutputLayer(np.random.default_rng(0).normal(size=(60, 2)))
    path = verify(layer).save_proofs(tmp_path / "proofs")
    with np.load(path) as archive:
        for key, array in read_proof_file(path, 60, 2).items():
            np.testing.assert_array_equal(array, archive[key])
            assert array.dtype == archive[key].dtype
    assert check_proofs(path, layer.weight.numpy(), None).unargmaxable > 0


def test_fortran_order_and_big_endians(tmp_path: Path) -> None:
    witness = np.asfortranarray(right_proofs()["witness"].astype(">f8"))
    path = write(tmp_path / "p.npz", witness=member(witness))
    assert check_proofs(path, WEIGHT, None, excluded=[5]).argmaxable == 3


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([print], dtype=object), allow_pickle=True)
    assert "dtype object" in refused(write(tmp_path / "p.npz", witness=stream.getvalue()))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (claiming("(1000000000, 2)", bytes(64)), "more than the proofs of this layer"),
        (claiming(f"({10**30},)", b""), "more than the proofs of this layer"),
        (claiming("(10000, 2)", bytes(64)), "ends after 64 of 160,000 bytes"),
        (claiming("(3, 2)", bytes(49)), "goes on after its 48 bytes"),
        (claiming("(3, -2)", b""), "has shape"),
        (claiming("(3, True)", b""), "has shape"),
        (claiming("'ab'", b""), "has shape"),
        (claiming("(1, 1, 1)", bytes(8)), "3 dimensions"),
        (claiming("(2, )", bytes(32), "[('a', '<f8'), ('b', '<f8')]"), "dtype"),
        (claiming("(2, )", bytes(32), "('<f8', (2,))"), "dtype|can't be read"),
        (claiming("__import__('os')", b""), "can't be read"),
        (claiming("(" * 3000, b""), "can't be read"),
        (b"\x93NUMPY\x02\x00" + (10**8).to_bytes(4, "little"), "header of 100,000,000 bytes"),
        (b"\x93NUMPY\x09\x00\x01\x00", "no .npy array"),
        (b"", "no .npy array"),
    ],
)
def test_arrays_that_are_not_what_they_claim(tmp_path: Path, content: bytes, reason: str) -> None:
    assert re.search(reason, refused(write(tmp_path / "p.npz", witness=content)))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = claiming("(20000000, )", bytes(160_000_000), "'<i8'")
    path = write(tmp_path / "p.npz", certificate_support=bomb)
    assert path.stat().st_size < 2**20
    assert "certificate_support has shape (20000000,), 160,000,000 bytes" in refused(path)
    # The header may lie as well.
    path = write(tmp_path / "q.npz", witness=claiming("(3, 2)", bytes(160_000_000)))
    assert "goes on after its 48 bytes" in refused(path)


def test_all_arrays_together_are_bounded(tmp_path: Path) -> None:
    """Each within the bound, and not their sum."""
    some = most_bytes(6, 2, 6000) * 6 // 80
    part = claiming(f"({some}, )", bytes(8 * some), "'<i8'")
    path = write(tmp_path / "p.npz", witness_class=part, certificate_class=part)
    assert "more than the proofs" in refused(path)


def test_the_bound_leaves_room_for_the_proofs_of_a_real_check(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    report = verify(OutputLayer(rng.normal(size=(400, 3)), rng.normal(size=400)))
    assert report.counts["unargmaxable"] > 100
    packed = report.save_proofs(tmp_path / "p.npz").stat().st_size
    size = sum(array.nbytes for array in map(np.asarray, vars(report.proofs).values()))
    assert size < (most_bytes(400, 3, packed) - 2**20) / 4


def test_other_files(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "absent.npz")
    assert "Is a directory" in refused(tmp_path)
    for name, content in (("empty", b""), ("text", b"no zip\n" * 100), ("npy", member(WEIGHT))):
        path = tmp_path / name
        path.write_bytes(content)
        assert "not a zip file" in refused(path)
    path = tmp_path / "layer.npz"
    np.savez(path, W=WEIGHT)
    assert "lacks status, witness_class" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("status.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("status.npy", b"")
    assert "status twice" in refused(path)


def test_a_file_of_another_layer(tmp_path: Path) -> None:
    path = write(tmp_path / "p.npz")
    with pytest.raises(RecheckError, match=r"status has shape .* layer of 7 classes x 2 features"):
        check_proofs(path, np.vstack([WEIGHT, WEIGHT[:1]]), None)
    with pytest.raises(RecheckError, match="layer of 6 classes x 3 features"):
        check_proofs(path, np.hstack([WEIGHT, WEIGHT[:, :1]]), None, [5])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_damaged_files_are_refused_or_right(tmp_path: Path, data: st.DataObject) -> None:
    """Cut, or with a few bytes changed: never another exception, never a wrong acceptance."""
    path = tmp_path / "p.npz"
    content = bytearray(write(path).read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        summary = check_proofs(path, WEIGHT, None, excluded=[5])
    except RecheckError:
        return
    assert (summary.argmaxable, summary.unargmaxable, summary.excluded) == (3, 1, 1)
