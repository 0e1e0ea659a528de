"""From the tensors of a file to exactly one layer, or an error that lists what could be meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unarg_callback.checkpoints.candidates import (
    Candidate,
    bias_by_name,
    by_convention,
    candidate_of,
    candidates,
    is_matrix,
    unclaimed_biases,
)
from unarg_callback.checkpoints.parts import hidden_text, hidden_weights, is_part, part_text
from unarg_callback.checkpoints.plainness import refuse_scaled, refuse_unless_plain
from unarg_callback.checkpoints.tensor_file import (
    Entry,
    KnownLayer,
    Orientation,
    TensorFile,
    listing,
    shown,
)
from unarg_callback.checkpoints.vocabulary import Exclusion, Vocabulary
from unarg_callback.errors import CheckpointError
from unarg_callback.geometry.layer import OutputLayer

NO_BIAS = "none"
"""What ``--bias`` takes to say that the layer has none."""


@dataclass(frozen=True)
class LocatedLayer:
    """Where a file holds its output layer; nothing is loaded yet.

    Args:
        file: the file.
        weight: the chosen weight.
        bias: its bias, or None.
        orientation: which dimension of the weight counts the classes.
        tied: other names of the same weight.
        why: what says so, where the names alone don't.
        names: C class names that the file brings along, or None.
        names_from: where they are from, or why there are none.
        exclusions: classes that take no part, by the format's own rules or as asked.
        notes: what else a user should hear about the file.
        names_files: the files that names and exclusions are from.
    """

    file: TensorFile
    weight: Entry
    bias: Entry | None
    orientation: Orientation
    tied: tuple[Entry, ...] = ()
    why: str = ""
    names: tuple[str, ...] | None = None
    names_from: str = ""
    exclusions: tuple[Exclusion, ...] = ()
    notes: tuple[str, ...] = ()
    names_files: tuple[Path, ...] = ()

    @property
    def files_read(self) -> tuple[Path, ...]:
        """Every file that was read for the layer or will be by ``load``, each once.

        The file itself, its shards and data beside it, the settings, and what the names are from.
        """
        return tuple(dict.fromkeys((self.file.path, *self.file.files, *self.names_files)))

    @property
    def classes(self) -> int:
        """C."""
        return self.weight.shape[0 if self.orientation == "classes-first" else 1]

    @property
    def excluded(self) -> tuple[int, ...]:
        """Ids of the classes that take no part, ascending."""
        return tuple(sorted(index for rule in self.exclusions for index in rule.ids))

    def describe(self) -> str:
        """The file, the weight with its shape and orientation, the bias; then what is excluded.

        One line, and one more for each rule that excludes classes and for each note.
        """
        names = " = ".join(shown(entry.name) for entry in (self.weight, *self.tied))
        bias = f"bias {shown(self.bias.name)}" if self.bias else "no bias"
        why = f" ({self.why})" if self.why else ""
        first = (
            f"{shown(self.file.path.name)}: {names} {self.weight.shape} {self.orientation}, "
            f"{bias}{why}"
        )
        excluded = [f"excluded: {rule}" for rule in self.exclusions]
        names_from = [self.names_from] if self.names_from else []
        return "\n".join([first, *excluded, *names_from, *self.notes])

    def with_names(self, names: Sequence[str], source: str | Path | None = None) -> LocatedLayer:
        """The same layer with these C names in place of the file's own.

        Args:
            names: C class names.
            source: the file that they were read from, for ``files_read``.
        """
        files = self.names_files if source is None else (*self.names_files, Path(source))
        return replace(self, names=tuple(names), names_from="", names_files=files)

    def with_excluded(self, ids: Iterable[int]) -> LocatedLayer:
        """The same layer with these classes excluded, in place of those the format excludes."""
        asked = tuple(ids)
        return replace(self, exclusions=(Exclusion(asked, "as asked"),) if asked else ())

    def load(
        self, names: Sequence[str] | None = None, excluded: Iterable[int] | None = None
    ) -> OutputLayer:
        """Load the two tensors, and nothing else.

        Args:
            names: C class names, or None for those that the file brings along, if any.
            excluded: ids of classes that take no part, or None for those that the format's own
                rules exclude.

        Raises:
            CheckpointError: the data is damaged.
            LayerError: the values, names or ids make no layer.
        """
        weight = self.file.load(self.weight.name)
        if self.orientation == "features-first":
            weight = weight.T
        bias = None if self.bias is None else self.file.load(self.bias.name).clone()
        # Copies, so that the layer neither keeps the file mapped nor changes with it.
        return OutputLayer(
            weight.clone().contiguous(),
            bias,
            names=self.names if names is None else names,
            excluded=self.excluded if excluded is None else excluded,
        )


def select_layer(
    file: TensorFile,
    weight: str | None = None,
    bias: str | None = None,
    orientation: Orientation | None = None,
) -> LocatedLayer:
    """Settle weight, bias and orientation, or say what has to be named.

    Args:
        file: what a reader listed.
        weight: name of the weight, or None if the file holds just one that can be meant.
        bias: name of the bias, "none", or None for the one that goes with the weight's name.
        orientation: which dimension counts the classes, or None if the bias's length or torch's
            convention tells.

    Raises:
        CheckpointError: nothing fits, or more than one answer is possible.
    """
    named_bias = None if bias in (None, NO_BIAS) else _vector(file, file.find(str(bias), "--bias"))
    named = None if weight is None else _matrix(file, file.find(weight, "--weight"))
    known = _known_layer(file, named)
    chosen: Candidate | KnownLayer
    if known is not None:
        chosen = known
        _matrix(file, known.weight)
    elif named is None:
        chosen = _only_candidate(file, named_bias)
    else:
        chosen = candidate_of(file, named)
    paired = None if bias == NO_BIAS else named_bias or chosen.bias
    if paired is None and bias != NO_BIAS and not isinstance(chosen, KnownLayer):
        paired = bias_by_name(file, chosen.weight)  # None, or one that _vector refuses.
    if paired is not None:
        _vector(file, paired)
    refuse_unless_plain(file, chosen.weight, chosen.tied, paired)
    own_way = known.orientation if known else None
    settled = _orientation(file, chosen.weight, paired, orientation, own_way)
    classes = chosen.weight.shape[0 if settled == "classes-first" else 1]
    if paired is None and bias != NO_BIAS and known is None:
        _refuse_forgotten_bias(file, chosen.weight, [classes])
    own = _vocabulary(file, known, classes)
    return LocatedLayer(
        file,
        chosen.weight,
        paired,
        settled,
        chosen.tied,
        why=known.why if known else "",
        names=own.names,
        names_from=own.note,
        exclusions=own.exclusions,
        notes=file.notes,
        names_files=own.files,
    )


def _vocabulary(file: TensorFile, known: KnownLayer | None, classes: int) -> Vocabulary:
    """What the format knows of the classes, unless the layer is another one with other classes."""
    counts = {k.weight.shape[0 if k.orientation == "classes-first" else -1] for k in file.known}
    if file.vocabulary is None or (known is None and classes not in counts):
        return Vocabulary()
    return file.vocabulary(classes)


def _known_layer(file: TensorFile, named: Entry | None) -> KnownLayer | None:
    """The layer that the format knows: the only one, or the one that was named."""
    if named is not None:
        return next((k for k in file.known if named in (k.weight, *k.tied)), None)
    if len(file.known) > 1:
        raise _ambiguous(file, file.known)
    if not file.known and file.refusal:
        matrices = [entry for entry in file.entries if is_matrix(entry)]
        matrices.sort(key=lambda entry: -max(entry.shape))
        raise CheckpointError(
            f"{file.path}: {file.refusal}; choose one with --weight NAME: {listing(matrices)}"
        )
    return file.known[0] if file.known else None


def _only_candidate(file: TensorFile, bias: Entry | None) -> Candidate:
    found = candidates(file, bias)
    hidden = hidden_weights(file) if bias is None and found else []
    if hidden:
        raise CheckpointError(
            f"{file.path} holds {hidden_text(file, hidden[0])}; that may be its output layer, and "
            f"others could be meant too: {listing(found)}; choose one of these with --weight NAME "
            "if it is"
        )
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(file, found)
    parts = [entry for entry in file.entries if is_part(file, entry)]
    if parts:
        raise CheckpointError(f"{file.path} holds {part_text(file, parts[0])}")
    for entry in hidden_weights(file):
        refuse_scaled(file, entry)  # Packed, so that its shape tells nothing.
    fits = f" that {shown(bias.name)} {bias.shape} fits" if bias else ""
    raise CheckpointError(
        f"{file.path} holds no output layer{fits}: expected a weight (classes, features) with a "
        f"bias, or with more classes than features; found {listing(file.entries)} (choose one "
        f"with --weight NAME){_unusable(file)}"
    )


def _ambiguous(file: TensorFile, found: Sequence[Candidate | KnownLayer]) -> CheckpointError:
    return CheckpointError(
        f"{file.path} holds {len(found)} layers that could be meant: {listing(found)}; "
        "choose one with --weight NAME"
    )


def _matrix(file: TensorFile, entry: Entry) -> Entry:
    if is_part(file, entry):
        raise CheckpointError(f"{file.path}: {part_text(file, entry)}")
    if not is_matrix(entry):
        raise CheckpointError(
            f"{file.path}: --weight {entry} holds {entry.dtype}; expected real numbers in two "
            "dimensions (classes, features)"
        )
    return entry


def _vector(file: TensorFile, entry: Entry) -> Entry:
    if is_part(file, entry):
        raise CheckpointError(f"{file.path}: {part_text(file, entry)}")
    if not entry.numeric or entry.length is None:
        raise CheckpointError(
            f"{file.path}: --bias {entry} holds {entry.dtype}; expected real numbers in one "
            "dimension (classes,) (--bias NAME or --bias none)"
        )
    return entry


def _unusable(file: TensorFile) -> str:
    """Why matrices that are there can't be meant."""
    odd = [entry for entry in file.entries if len(entry.shape) == 2 and not entry.numeric]
    if not odd:
        return ""
    kinds = listing(f"{entry} holds {entry.dtype}" for entry in odd)
    return f"; {kinds}, which is not read: save it dense, as real numbers of at most 64 bits"


def _refuse_forgotten_bias(file: TensorFile, weight: Entry, sizes: Iterable[int]) -> None:
    loose = unclaimed_biases(file, sizes)
    if loose:
        raise CheckpointError(
            f"{file.path}: {weight} has no bias of its own name, but {listing(loose)} would fit; "
            "say --bias NAME or --bias none"
        )


def _orientation(
    file: TensorFile,
    weight: Entry,
    bias: Entry | None,
    asked: Orientation | None,
    known: Orientation | None,
) -> Orientation:
    """Which dimension counts the classes: asked for, by the bias's length, by convention.

    The format's own convention, if it has one, comes before torch's.
    """
    rows, columns = weight.shape
    sizes: dict[Orientation, int] = {"classes-first": rows, "features-first": columns}
    fitting = [way for way, size in sizes.items() if bias is None or bias.length == size]
    if asked is not None:
        if asked not in fitting and bias is not None:
            raise CheckpointError(
                f"{file.path}: {weight} {asked} has {sizes[asked]} classes, but its bias {bias} "
                f"has {bias.length}; expected one a class (--orientation, --bias NAME or --bias "
                "none)"
            )
        return asked
    if not fitting and bias is not None:
        raise CheckpointError(
            f"{file.path}: bias {bias} has {bias.length} values, but {weight} has {rows} rows and "
            f"{columns} columns; expected one a class (--bias NAME or --bias none)"
        )
    if len(fitting) == 1:
        return fitting[0]
    if known is not None:
        return known
    if by_convention(file, weight):
        return "classes-first"
    if bias is None:
        _refuse_forgotten_bias(file, weight, weight.shape)
    why = "it has no bias to tell" if bias is None else "its bias would fit either way"
    raise CheckpointError(
        f"{file.path}: {weight} may be (classes, features) or (features, classes), and {why}; say "
        "--orientation classes-first or --orientation features-first"
    )
