"""``python -m srfca``."""

from srfca.cli.app import main

if __name__ == "__main__":
    main()
