from __future__ import annotations

from hypothesis import settings

settings.register_profile("srfca", deadline=None)
settings.load_profile("srfca")
