"""Clients on a Ray cluster: a simulation beyond one machine. Needs the extra ``srfca[ray]``."""

try:
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("srfca.ray needs Ray: pip install 'srfca[ray]'") from error

from srfca.ray.cluster import connect
from srfca.ray.federation import RayFederation
from srfca.ray.files import files_in

__all__ = ["RayFederation", "connect", "files_in"]
