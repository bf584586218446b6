"""What the site has beside the pages: toctrees, generated pages, and a check of what was built."""
