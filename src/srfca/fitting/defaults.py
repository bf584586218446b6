"""How clients with a user's data train by default, in Python and on the command line.

``LocalTraining()`` has the settings of the paper, SGD at a learning rate for its image data. A
table of unknown kind is served better by Adam.
"""

from __future__ import annotations

from srfca.federation import LocalTraining

DEFAULT_LOCAL = LocalTraining(steps=200, local_steps=5, batch_size=20, optimizer="adam", lr=0.005)
"""How clients train."""
DEFAULT_HIDDEN = (64,)
"""Hidden layers of an MLP."""
