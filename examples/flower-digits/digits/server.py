"""The server: SR-FCA, unless the run config says otherwise."""

from digits.task import model
from srfca.flower import server_app

app = server_app(model=model)
