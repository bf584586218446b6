"""SR-FCA: Successive Refine Federated Clustering Algorithm."""

from srfca.methods.sr_fca.options import SRFCA

__all__ = ["SRFCA"]
