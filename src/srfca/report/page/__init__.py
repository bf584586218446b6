"""A page of HTML that shows runs, and opens without a network. Needs ``srfca[report]``."""

try:
    import jinja2  # noqa: F401
    import vl_convert  # noqa: F401
except ImportError as error:
    raise ImportError("reports need Jinja2 and vl-convert: pip install 'srfca[report]'") from error
