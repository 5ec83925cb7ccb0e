"""Which rows run together, and how they are padded to one rectangle."""

from collections.abc import Iterator, Sequence

import numpy as np

from drut.tensors import Batch, EncodedRow, Int64


def plan_batches(lengths: Sequence[int], *, max_tokens: int) -> Iterator[list[int]]:
    """Group row indices, shortest rows first, so that rows x longest stays within `max_tokens`.

    A row longer than `max_tokens` runs alone. Inside a group rows keep their order.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Ascending, so the newcomer is the longest of the group.
        if group and (len(group) + 1) * lengths[index] > max_tokens:
            yield sorted(group)
            group = []
        group.append(index)
    if group:
        yield sorted(group)


def collate(rows: Sequence[EncodedRow], *, pad_id: int) -> Batch:
    """Pad rows on the right to one rectangle.

    Args:
        rows: at least one; all of them with the parallel layout, or none.
        pad_id: token id of the padding.
    """
    lengths = np.fromiter((len(row.ids) for row in rows), np.int64, len(rows))
    widths = np.fromiter((len(row.markers) for row in rows), np.int64, len(rows))
    tokens, options = int(lengths.max()), int(widths.max(initial=1))
    real = np.arange(tokens) < lengths[:, None]
    parallel = any(row.position_ids is not None for row in rows)
    return Batch(
        input_ids=_padded([row.ids for row in rows], tokens, pad_id),
        attention_mask=real.astype(np.int64),
        marker_pos=_padded([row.markers for row in rows], options, 0),
        marker_mask=np.arange(options) < widths[:, None],
        qtype=np.fromiter((row.qtype for row in rows), np.int64, len(rows)),
        position_ids=_padded([_given(row.position_ids) for row in rows], tokens, 0)
        if parallel
        else None,
        option_ids=_padded([_given(row.option_ids) for row in rows], tokens, 0)
        if parallel
        else None,
    )


def made_up(shape: tuple[int, int, int], *, pad_id: int, parallel: bool) -> Batch:
    """A batch that says nothing, for warming a runtime up.

    Args:
        shape: rows, tokens, options.
        pad_id: token id that fills it.
        parallel: whether the graph takes the parallel layout.
    """
    rows, tokens, options = shape
    layout = np.zeros((rows, tokens), np.int64) if parallel else None
    return Batch(
        input_ids=np.full((rows, tokens), pad_id, np.int64),
        attention_mask=np.ones((rows, tokens), np.int64),
        marker_pos=np.zeros((rows, options), np.int64),
        marker_mask=np.ones((rows, options), np.bool_),
        qtype=np.zeros(rows, np.int64),
        position_ids=layout,
        option_ids=layout,
    )


def _padded(pieces: Sequence[Int64], width: int, fill: int) -> Int64:
    rectangle = np.full((len(pieces), width), fill, np.int64)
    for row, piece in zip(rectangle, pieces, strict=True):
        row[: len(piece)] = piece
    return rectangle


def _given(ids: Int64 | None) -> Int64:
    if ids is None:
        raise ValueError("rows with and without the parallel layout cannot share a batch")
    return ids
