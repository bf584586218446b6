"""The server: it runs SR-FCA, unless pyproject.toml chooses another method."""

from flower_digits.task import model
from srfca.flower import server_app

app = server_app(model=model)
