"""Write the generated tables of the docs.

python docs/make_tables.py           # update them
python docs/make_tables.py --check   # exit code 1 if one is out of date
"""

import re
import sys
from pathlib import Path

from srfca.methods import METHODS, all_methods
from srfca.methods._common.search_space import Choices, Layers, Percentages, Range, SearchSpace
from srfca.report.markdown import replace_generated, table_line
from srfca.report.methods import methods_markdown, parameters_markdown

DOCS = Path(__file__).parent
BENCHMARKS = DOCS.parent / "benchmarks" / "RESULTS.md"

ACCURACY = "test accuracy %"
CHOICES = {
    # what the clients are like: page, section, and for a table of federations its line
    "four groups, rotated images, 600 each": ("results", "Rotated MNIST", ""),
    "two groups far apart": ("results", "Inverted MNIST", ""),
    "four groups, few images each": ("results", "Rotated digits: every method", ""),
    "50 writers, no clear groups": ("results", "FEMNIST", ""),
    "three groups and label skew: rotated": ("field", "Results", "fashion-rotations"),
    "three groups and label skew: classes permuted": ("field", "Results", "fashion-permutations"),
    "two groups and two outliers": ("field", "Results", "fashion-groups-outliers"),
    "one group and two outliers": ("field", "Results", "fashion-outliers"),
    "one group, strong label skew": ("field", "Results", "fashion-dirichlet-03"),
    "one group, wrong labels at half of the clients": ("field", "Results", "fashion-noise-60"),
}
IFCA = {"Rotated MNIST": "IFCA, K=4", "Inverted MNIST": "IFCA, K=2", "FEMNIST": "IFCA, K=2"}
"""With the true number of clusters; where there is none, the one of best accuracy."""
COSTS = ["local steps", "models down", "models up", "evaluations"]


def pages() -> dict[str, str]:
    """Return the page of each method that has one, relative to docs/methods."""
    names = {method.key: f"{method.__module__.split('.')[2]}.md" for method in all_methods()}
    return {key: name for key, name in names.items() if (DOCS / "methods" / name).exists()}


def tables(page: str, section: str) -> list[dict[str, dict[str, str]]]:
    """Return the tables of a section of a page: each a dict of rows, by their first cell."""
    text = (DOCS / f"{page}.md").resolve().read_text("utf-8")
    _, _, rest = text.partition(f"\n## {section}\n")
    result, table = [], list[list[str]]()
    for line in [*rest.partition("\n## ")[0].splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            table.append([cell.strip().replace("**", "") for cell in cells])
        elif table:
            head, _, *lines = table
            result.append({cells[0]: dict(zip(head, cells, strict=True)) for cells in lines})
            table = []
    return result


def choices() -> str:
    """Return the table of what was measured, read from the pages of results."""
    columns = ["SR-FCA", "IFCA", "true clusters", "one model", "alone"]
    text = table_line(["clients", *columns, "from"])
    text += table_line(["---", *["---:"] * len(columns), "---"])
    for description, (page, section, federation) in CHOICES.items():
        first = tables(page, section)[0]
        if federation:
            line = first[federation]
            scores = [line["SR-FCA"], "", line["Oracle"], line["Global"], line["Local"]]
        else:
            keys = ["SR-FCA", IFCA.get(section, "IFCA, K=4"), "Oracle", "Global", "Local"]
            scores = [first.get(key, {}).get(ACCURACY, "") for key in keys]
        anchor = section.lower().replace(":", "").replace(" ", "-")
        scores = [re.sub(r" ?± ?", " ± ", score) for score in scores]
        text += table_line([description, *scores, f"[{federation or section}]({page}.md#{anchor})"])
    return text


def costs() -> str:
    """Return the table of costs on rotated MNIST, read from the page of results."""
    lines = tables("results", "Rotated MNIST")[1]
    text = table_line(["method", *COSTS]) + table_line(["---", *["---:"] * len(COSTS)])
    for method in ("SR-FCA", "CFL", "IFCA, K=4", "Global", "Local"):
        text += table_line([method, *(lines[method][name] for name in COSTS)])
    return text


def speed() -> str:
    """Return the table of timings on a CPU, read from the results of the benchmarks."""
    text = table_line(["what", "srfca", "times as long"]) + table_line(["---"] * 3)
    for section in re.findall("^## (.*)$", BENCHMARKS.read_text("utf-8"), re.MULTILINE):
        first, *others = tables("../benchmarks/RESULTS", section)[0].items()
        times = [f"{name}: {columns['times srfca']}" for name, columns in others]
        text += table_line([section, f"{first[1]['median, s']} s", "; ".join(times)])
    return text


def space_in_words(name: str, space: SearchSpace) -> str:
    """Return a parameter and the values that are tried, in a few words."""
    match space:
        case Choices(values=values):
            return f"`{name}`: {', '.join(values)}"
        case Layers(most=most):
            return f"`{name}` 1 to {most}, as the model permits"
        case Percentages(low=low, high=high, word=word):
            return f"`{name}` " + ("" if word is None else f"{word}, or ") + f"{low}% to {high}%"
        case Range(low=low, high=high, divided_by=None):
            return f"`{name}` {low:g} to {high:g}"
        case Range(low=low, high=high, divided_by=divisor):
            return f"`{name}` {low:g} / `{divisor}` to {high:g} / `{divisor}`"


def searched() -> str:
    """Return the table of what ``srfca tune`` searches."""
    text = table_line(["method", "searched in addition to the learning rate"]) + table_line(
        ["---"] * 2
    )
    methods = [method for method in all_methods() if method.__module__.startswith("srfca.")]
    for method in methods:
        if method.searched:
            words = [space_in_words(name, space) for name, space in method.searched.items()]
            text += table_line([method.name, "; ".join(words)])
    others = [method.name for method in methods if not method.searched]
    return text + table_line([", ".join(others), "nothing"])


def parameters() -> dict[Path, dict[str, str]]:
    """Return the tables of parameters of the methods' pages that have a place for one."""
    files = {DOCS / "methods" / name: METHODS[key] for key, name in pages().items()}
    return {
        path: {"parameters": parameters_markdown(method)}
        for path, method in files.items()
        if "<!-- parameters:begin -->" in path.read_text("utf-8")
    }


def generated() -> dict[Path, dict[str, str]]:
    """Return the generated parts of each page, by name."""
    return parameters() | {
        DOCS / "methods" / "README.md": {"methods": methods_markdown(pages=pages())},
        DOCS / "compare.md": {"searched": searched()},
        DOCS / "which_method.md": {"choices": choices(), "costs": costs()},
        DOCS / "speed.md": {"speed": speed()},
    }


def main() -> int:
    """Update the generated parts, or check them."""
    outdated = 0
    for path, parts in generated().items():
        text = path.read_text("utf-8")
        updated = text
        for name, content in parts.items():
            updated = replace_generated(updated, name, content)
        if "--check" not in sys.argv[1:]:
            path.write_text(updated, "utf-8")
        elif updated != text:
            print(f"{path} is out of date: run python docs/make_tables.py", file=sys.stderr)
            outdated = 1
    return outdated


if __name__ == "__main__":
    sys.exit(main())
