"""Tools for tests, of this package and of others: checks, and a slow and obvious federation."""

from srfca.testing.case import CheckError, make_case
from srfca.testing.checks import FEDERATION_CHECKS, check_federation
from srfca.testing.reference import ReferenceFederation

__all__ = [
    "FEDERATION_CHECKS",
    "CheckError",
    "ReferenceFederation",
    "check_federation",
    "make_case",
]
