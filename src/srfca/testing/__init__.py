"""Tools for tests, of this package and of others: checks, and a slow and obvious federation."""

from srfca.testing.case import make_case
from srfca.testing.checks import FEDERATION_CHECKS, check_federation
from srfca.testing.errors import CheckError
from srfca.testing.methods import METHOD_CHECKS, check_method
from srfca.testing.reference import ReferenceFederation

__all__ = [
    "FEDERATION_CHECKS",
    "METHOD_CHECKS",
    "CheckError",
    "ReferenceFederation",
    "check_federation",
    "check_method",
    "make_case",
]
