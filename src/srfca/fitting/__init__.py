"""From arrays or a table to a result in one call, with a model whose sizes follow from the data."""

from srfca.fitting.call import fit, make_simulation
from srfca.fitting.defaults import DEFAULT_HIDDEN, DEFAULT_LOCAL
from srfca.fitting.sizes import model_sizes, num_outputs, with_float_inputs

__all__ = [
    "DEFAULT_HIDDEN",
    "DEFAULT_LOCAL",
    "fit",
    "make_simulation",
    "model_sizes",
    "num_outputs",
    "with_float_inputs",
]
