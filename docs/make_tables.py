"""Write the generated tables of the docs.

python docs/make_tables.py           # update them
python docs/make_tables.py --check   # exit code 1 if one is out of date
"""

import sys
from pathlib import Path

from srfca.methods import all_methods
from srfca.report.markdown import replace_generated
from srfca.report.methods import methods_markdown

DOCS = Path(__file__).parent


def pages() -> dict[str, str]:
    """Return the page of each method that has one, relative to docs/methods."""
    names = {method.key: f"{method.__module__.split('.')[2]}.md" for method in all_methods()}
    return {key: name for key, name in names.items() if (DOCS / "methods" / name).exists()}


def main() -> int:
    """Update or check the table of methods."""
    path = DOCS / "methods" / "README.md"
    text = path.read_text("utf-8")
    updated = replace_generated(text, "methods", methods_markdown(pages=pages()))
    if "--check" in sys.argv[1:]:
        if updated != text:
            print(f"{path} is out of date: run python docs/make_tables.py", file=sys.stderr)
        return int(updated != text)
    path.write_text(updated, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
