"""The server: SR-FCA, unless pyproject.toml says otherwise."""

from flower_digits.task import model
from srfca.flower import server_app

app = server_app(model=model)
