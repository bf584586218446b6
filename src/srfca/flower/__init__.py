"""Real clients: every method over Flower. Needs the extra ``srfca[flower]``."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("srfca.flower needs Flower: pip install 'srfca[flower]'") from error

from srfca.flower.client import client_app
from srfca.flower.federation import FlowerFederation
from srfca.flower.server import server_app

__all__ = ["FlowerFederation", "client_app", "server_app"]
