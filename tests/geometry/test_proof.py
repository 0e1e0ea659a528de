from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unarg_callback import Certificate, Domain, OutputLayer, Proofs, Status, UnargError, Witness
from unarg_callback.verification import verify


def proofs_of(domain: str = "box:100") -> Proofs:
    weight = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.1, 0.1], [1.0, 0.0], [0.0, 0.1]]
    return verify(OutputLayer(weight, excluded=[4]), domain).proofs


@pytest.mark.parametrize("domain", ["box:100", "free"])
@pytest.mark.parametrize("name", ["proofs.npz", "proofs", "proofs.v1"])
def test_what_is_saved_is_loaded(tmp_path: Path, domain: str, name: str) -> None:
    proofs = proofs_of(domain)
    path = proofs.save(tmp_path / name)
    assert path.suffix == ".npz"
    loaded = Proofs.load(path)
    assert list(vars(loaded)) == list(vars(proofs))
    for key, value in vars(proofs).items():
        if isinstance(value, np.ndarray):
            assert vars(loaded)[key].dtype == value.dtype
        assert np.array_equal(vars(loaded)[key], value), key
    assert loaded.domain.is_free is (domain == "free")
    expected = Domain.parse(domain).bounds(2)
    assert np.array_equal(np.stack(loaded.domain.bounds(2)), np.stack(expected))


def test_the_file_is_as_issue_2_lists_it(tmp_path: Path) -> None:
    path = proofs_of().save(tmp_path / "proofs.npz")
    with np.load(path, allow_pickle=False) as archive:
        found = {key: (archive[key].dtype, archive[key].ndim) for key in archive.files}
    ids, reals = np.dtype(np.int64), np.dtype(np.float64)
    assert found == {
        "status": (np.dtype(np.int8), 1),
        "witness_class": (ids, 1),
        "witness": (reals, 2),
        "certificate_class": (ids, 1),
        "certificate_offsets": (ids, 1),
        "certificate_support": (ids, 1),
        "certificate_weight": (reals, 1),
        "domain_low": (reals, 1),
        "domain_high": (reals, 1),
        "min_lead": (reals, 0),
    }


def test_proof_of_each_class() -> None:
    proofs = proofs_of()
    assert proofs.status.tolist() == [1, 1, 1, 2, 3, 2]
    kinds = [type(proofs.proof_of(index)) for index in range(6)]
    assert kinds == [Witness, Witness, Witness, Certificate, type(None), Certificate]
    assert proofs.proof_of(99) is None
    for certificate in proofs.certificates():
        again = proofs.proof_of(certificate.index)
        assert isinstance(again, Certificate)
        assert again.index == certificate.index
        assert np.array_equal(again.support, certificate.support)
        assert np.array_equal(again.weight, certificate.weight)


def test_no_certificates_at_all() -> None:
    proofs = verify(OutputLayer([[1.0], [-1.0]])).proofs
    assert proofs.certificates() == []
    assert proofs.certificate_offsets.tolist() == [0]


def test_status_values_are_those_of_the_file_format() -> None:
    assert {status.name: int(status) for status in Status} == {
        "UNDECIDED": 0,
        "ARGMAXABLE": 1,
        "UNARGMAXABLE": 2,
        "EXCLUDED": 3,
    }


def _empty(path: Path, proofs: Proofs) -> None:
    path.write_bytes(b"")


def _text(path: Path, proofs: Proofs) -> None:
    path.write_text("not an archive")


def _one_array(path: Path, proofs: Proofs) -> None:
    with path.open("wb") as file:
        np.save(file, proofs.status)


def _truncated(path: Path, proofs: Proofs) -> None:
    content = proofs.save(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _corrupted(path: Path, proofs: Proofs) -> None:
    """One byte of the compressed data of a member."""
    content = bytearray(proofs.save(path).read_bytes())
    content[content.index(b"status.npy") + 40] ^= 0xFF
    path.write_bytes(content)


def _key_missing(path: Path, proofs: Proofs) -> None:
    np.savez(path, **{key: value for key, value in vars(proofs).items() if key != "witness"})


def _pickled(path: Path, proofs: Proofs) -> None:
    np.savez(path, **{**vars(proofs), "status": np.array([{}], dtype=object)})


def _lead_of_two(path: Path, proofs: Proofs) -> None:
    np.savez(path, **{**vars(proofs), "min_lead": np.zeros(2)})


def _lead_of_text(path: Path, proofs: Proofs) -> None:
    np.savez(path, **{**vars(proofs), "min_lead": np.array("x")})


def _folder(path: Path, proofs: Proofs) -> None:
    path.mkdir()


def _missing(path: Path, proofs: Proofs) -> None:
    pass


@pytest.mark.parametrize(
    "make",
    [
        _empty,
        _text,
        _one_array,
        _truncated,
        _corrupted,
        _key_missing,
        _pickled,
        _lead_of_two,
        _lead_of_text,
        _folder,
        _missing,
    ],
    ids=lambda make: make.__name__[1:],
)
def test_a_file_that_holds_no_proofs_is_refused(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "proofs.npz"
    make(path, proofs_of())
    with pytest.raises(UnargError) as caught:
        Proofs.load(path)
    assert str(path) in str(caught.value)


def test_no_damaged_byte_gives_any_other_error(tmp_path: Path) -> None:
    path = proofs_of().save(tmp_path / "proofs.npz")
    content = path.read_bytes()
    damaged = tmp_path / "damaged.npz"
    for at in range(0, len(content), 13):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        damaged.write_bytes(changed)
        try:
            Proofs.load(damaged)
        except UnargError:
            continue
