"""``python -m srfca``."""

from srfca.cli import main

main()
