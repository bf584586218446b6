"""Progress of long work: a callback of the run, not an argument of every function.

The caller sets a callback for the duration of long work; the code that does the work reports the
local steps that are done.

>>> done = []
>>> with reporting_to(done.append):
...     report(5)
>>> report(3)  # nobody listens
>>> done
[5]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Callback = Callable[[int], None]
"""Called with the number of local steps done since the last call."""


def ignore(steps: int) -> None:
    """No-op progress callback."""


_callback: ContextVar[Callback] = ContextVar("srfca progress", default=ignore)


def report(steps: int) -> None:
    """Report that some local steps are done."""
    _callback.get()(steps)


def callback() -> Callback:
    """Return the present callback, for threads that do not inherit the context."""
    return _callback.get()


@contextmanager
def reporting_to(callback: Callback) -> Iterator[None]:
    """Report progress to this callback inside the ``with`` block."""
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)
