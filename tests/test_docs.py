"""The examples of the documentation run: each page's Python blocks from top to bottom, in an empty directory."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*?)[ \t]*$")


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The blocks fenced as `python`, each with the number of its first line. `python no-run` is left out."""
    blocks: list[tuple[int, str]] = []
    end, info, start, indent, lines = "", "", 0, 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not end:
            if opened := FENCE.match(line):
                end, info, start, lines = opened["fence"], opened["info"], number + 1, []
                indent = len(opened["indent"])
        elif line.strip().startswith(end) and not line.strip().strip(end[0]):
            if info.split() == ["python"]:
                blocks.append((start, "\n".join(lines)))
            end = ""
        else:
            lines.append(line[min(indent, len(line) - len(line.lstrip())) :])
    assert not end, f"the block that begins at line {start} is not closed"
    return blocks


def with_examples() -> list[Path]:
    return [page for page in PAGES if python_blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", with_examples(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "__main__"}
    for start, block in python_blocks(page.read_text(encoding="utf-8")):
        # Blank lines before it, so that a traceback points at the page's own lines.
        exec(compile("\n" * (start - 1) + block, str(page), "exec"), space)


def test_the_first_pages_have_examples():
    assert {"README.md", "docs/core.md"} <= {str(page.relative_to(ROOT)) for page in with_examples()}


def test_which_blocks_are_run():
    page = """
```python
a = "
```
text
````python
```python inside```
````
```python no-run
c
```
```
d
```
  ```python
  if e:
      e

  ```
~~~python
f
~~~
```pycon
g
```
"""
    found = [(3, 'a = "'), (7, "```python inside```"), (16, "if e:\n    e\n"), (21, "f")]
    assert python_blocks(page) == found


def test_a_block_that_is_not_closed_is_an_error():
    with pytest.raises(AssertionError, match="line 2 is not closed"):
        python_blocks("```python\nx = 1\n")
