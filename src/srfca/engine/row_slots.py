"""Stacked tensors that lie side by side in rows, copied from and to them by few operations.

A round of few steps is short, so what it does for each tensor of each client counts. On a GPU one
kernel copies all tensors of a client, except those whose memory has another order than the row
(``channels_last``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RowSlots:
    """Tensors ``[c, *shape]`` that make rows ``[c, n]``, in this order.

    Args:
        tensors: The tensors; the slots are views of their memory, made once.

    Examples:
        >>> weights, biases = torch.zeros(5, 2, 3), torch.zeros(5, 2)
        >>> slots = RowSlots([weights, biases])
        >>> slots.load(torch.arange(8.0).expand(5, 8))
        >>> weights[4], biases[4]
        (tensor([[0., 1., 2.],
                [3., 4., 5.]]), tensor([6., 7.]))
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._widths = [t[0].numel() for t in tensors]
        # without the dimension of a single client, part and slot have equal strides: one kernel
        slots = [t.detach()[0] if len(t) == 1 else t.detach() for t in tensors]
        self._several = bool(tensors) and len(tensors[0]) > 1
        self._ordered = [at for at, slot in enumerate(slots) if slot.is_contiguous()]
        self._reordered = [at for at, slot in enumerate(slots) if not slot.is_contiguous()]
        lead = tensors[0].shape[:1] if self._several else ()
        self._ordered_slots = [slots[at].view(*lead, self._widths[at]) for at in self._ordered]
        self._reordered_slots = [slots[at] for at in self._reordered]

    @torch.no_grad()
    def load(self, rows: Tensor) -> None:
        """Copy rows ``[c, n]`` to the tensors."""
        for slots, parts in self._pairs(rows):
            torch._foreach_copy_(slots, parts)

    @torch.no_grad()
    def store(self, rows: Tensor) -> None:
        """Copy the tensors to rows ``[c, n]``."""
        for slots, parts in self._pairs(rows):
            torch._foreach_copy_(parts, slots)

    def _pairs(self, rows: Tensor) -> list[tuple[list[Tensor], list[Tensor]]]:
        """Return slots, and the parts of the rows that belong to them."""
        parts = (rows if self._several else rows[0]).split(self._widths, dim=-1)
        ordered = [parts[at] for at in self._ordered]
        reordered = [
            parts[at].view(slot.shape)
            for at, slot in zip(self._reordered, self._reordered_slots, strict=True)
        ]
        pairs = [(self._ordered_slots, ordered), (self._reordered_slots, reordered)]
        return [(slots, matching) for slots, matching in pairs if slots]
