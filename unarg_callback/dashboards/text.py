"""Tables in the way a logger has for text, whatever its make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unarg_callback.dashboards.storage import file_name, write_text
from unarg_callback.dashboards.tables import Table


class TableMemory:
    """Which tables have been shown, so that only those that changed are shown again.

    >>> memory = TableMemory()
    >>> memory.changed({"a": Table(("Nobody.",), ())})
    {'a'}
    >>> memory.changed({"a": Table(("Nobody, again.",), ())})
    set()
    """

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}

    def changed(self, tables: Mapping[str, Table]) -> set[str]:
        """Tags of the tables that list others than when last asked; they count as shown now.

        Args:
            tables: by tag.
        """
        changed = {tag for tag, table in tables.items() if table.content != self._shown.get(tag)}
        self._shown.update({tag: tables[tag].content for tag in changed})
        return changed


def write_table(logger: Any, tag: str, table: Table, step: int, *, changed: bool = True) -> None:
    """Show a table in the way that a logger has for text.

    TensorBoard shows it as Markdown, a logger with ``log_text`` (Weights & Biases) as a table, both
    only if it has changed. For any other the latest is kept in a file, ``unargmaxable-<head>.md``,
    where the logger keeps its own; a logger without a folder gets none.

    Args:
        logger: of Lightning, or alike.
        tag: of the table, as :func:`~unarg_callback.dashboards.tables.text_tag` gives it.
        table: what to show.
        step: of the check.
        changed: whether it lists others than when last shown.

    Raises:
        OSError: the file can't be written.
        ImportError: the package for the folder's kind of URL is missing.
        ValueError: there is no such kind of URL.
        Exception: whatever the logger raises.
    """
    add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
    log_text = getattr(logger, "log_text", None)
    if add_text is not None:
        if changed:
            add_text(tag, table.markdown(), global_step=step)
    elif log_text is not None:
        if changed:
            log_text(
                key=tag,
                columns=list(table.columns),
                data=[list(row) for row in table.rows],
                step=step,
            )
    else:
        folder = getattr(logger, "log_dir", None) or getattr(logger, "save_dir", None)
        if isinstance(folder, str | Path):
            write_file(folder, tag, table)


def write_file(folder: str | Path, tag: str, table: Table) -> None:
    """Keep the latest table as Markdown: ``<folder>/unargmaxable-<head>.md`` and the like.

    Args:
        folder: a path, or a URL that fsspec can open.
        tag: of the table, "unarg/<head>/<what>".
        table: what to write.

    Raises:
        OSError: the file can't be written.
        ImportError: the package for this kind of URL is missing.
        ValueError: there is no such kind of URL.
    """
    head, what = tag.removeprefix("unarg/").rsplit("/", 1)
    write_text(folder, f"{file_name(f'{what}-{head}')}.md", table.markdown())
