"""Charts of runs and comparisons, made with Altair. Needs the extra ``srfca[report]``."""

try:
    import altair  # noqa: F401
except ImportError as error:
    raise ImportError("charts need Altair: pip install 'srfca[report]'") from error
