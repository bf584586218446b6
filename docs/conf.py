"""How Sphinx builds the site: make docs.

Pages are plain Markdown that also reads well without Sphinx. What only the site has is added here:
toctrees made of the links of the section pages, and the generated parts of the reference.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sphinx.ext.napoleon import GoogleDocstring
from website import api, generated, pages, reference

import srfca

project = "srfca"
author = "The srfca authors"
copyright = "The srfca authors, Apache License 2.0"
release = version = srfca.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
root_doc = "index"
highlight_language = "text"
default_role = "code"
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"srfca {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#12664a", "color-brand-content": "#12664a"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a8", "color-brand-content": "#5fd3a8"},
}
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


# Our docstrings of properties are sentences, in which a colon does not end a type.
GoogleDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())

PARTS = {
    "api": api.list_markdown(),
    "commands": reference.commands(),
    "experiments": reference.experiments(),
}
"""Generated parts of pages, by the name in their comment."""


def complete_page(app, name, source):
    """Complete a page that Sphinx has read."""
    source[0] = pages.complete(name, source[0], PARTS)


def link_pages(app, what, name, value, options, lines):
    """Make links of the pages that a docstring names."""
    pages.link_pages(lines)


def setup(app):
    """Add what only the site has."""
    app.connect("builder-inited", lambda app: generated.write())
    app.connect("source-read", complete_page)
    app.connect("autodoc-process-docstring", link_pages)
