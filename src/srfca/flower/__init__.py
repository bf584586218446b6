"""Real clients: every method on Flower. Needs the extra ``srfca[flower]``."""

from srfca.flower.client import client_app
from srfca.flower.federation import FlowerFederation

__all__ = ["FlowerFederation", "client_app"]
