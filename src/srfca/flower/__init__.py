"""Real clients: every method on Flower. Needs the extra ``srfca[flower]``."""

from srfca.flower.client import client_app
from srfca.flower.federation import FlowerFederation
from srfca.flower.server import server_app

__all__ = ["FlowerFederation", "client_app", "server_app"]
