"""Middleware: federations around a federation that see every request. One file each."""

from srfca.federation.middleware.accounting import Accounting
from srfca.federation.middleware.base import Middleware
from srfca.federation.middleware.counting import Budget, Counting
from srfca.federation.middleware.distrust import Distrusting
from srfca.federation.middleware.faults import DropReplies
from srfca.federation.middleware.journal import Journal, Journaling
from srfca.federation.middleware.privacy import Private
from srfca.federation.middleware.subset import Subset
from srfca.federation.middleware.validation import Validating

__all__ = [
    "Accounting",
    "Budget",
    "Counting",
    "Distrusting",
    "DropReplies",
    "Journal",
    "Journaling",
    "Middleware",
    "Private",
    "Subset",
    "Validating",
]
