"""The examples of the documentation run: each page's blocks from top to bottom, in an empty directory.

Blocks fenced as `python` are run, lines of those fenced as `sh run` are commands, and `toml NAME` is a file's text.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaction.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*?)[ \t]*$")


def fenced_blocks(text: str) -> list[tuple[int, list[str], str]]:
    """All fenced blocks: the number of the first line, the words after the fence, the text."""
    blocks: list[tuple[int, list[str], str]] = []
    end, info, start, indent, lines = "", "", 0, 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not end:
            if opened := FENCE.match(line):
                end, info, start, lines = opened["fence"], opened["info"], number + 1, []
                indent = len(opened["indent"])
        elif line.strip().startswith(end) and not line.strip().strip(end[0]):
            blocks.append((start, info.split(), "\n".join(lines)))
            end = ""
        else:
            lines.append(line[min(indent, len(line) - len(line.lstrip())) :])
    assert not end, f"the block that begins at line {start} is not closed"
    return blocks


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The blocks fenced as `python`, each with the number of its first line. `python no-run` is left out."""
    return [(start, block) for start, info, block in fenced_blocks(text) if info == ["python"]]


def run_commands(page: Path, block: str) -> None:
    """The lines of a block, each a call of the command; what follows a # is left out."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "fedaction", f"{page}: only `fedaction` commands are run, not {line!r}"
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, f"{page}: {line}\n{result.output}"


def with_examples() -> list[Path]:
    run = (["python"], ["sh", "run"])
    return [p for p in PAGES if any(info in run for _, info, _ in fenced_blocks(p.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", with_examples(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "__main__"}
    for start, info, block in fenced_blocks(page.read_text(encoding="utf-8")):
        if info == ["python"]:
            # Blank lines before it, so that a traceback points at the page's own lines.
            exec(compile("\n" * (start - 1) + block, str(page), "exec"), space)
        elif info == ["sh", "run"]:
            run_commands(page, block)
        elif info[:1] == ["toml"] and len(info) == 2:
            (tmp_path / info[1]).write_text(block, encoding="utf-8")


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


def test_commands_and_recipes_of_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fenced_blocks("```toml a.toml\nx = 1\n```\n") == [(2, ["toml", "a.toml"], "x = 1")]
    here = ROOT / "docs" / "here.md"
    run_commands(here, "fedaction data \\\n list  # layouts\n")
    with pytest.raises(AssertionError, match="only `fedaction` commands are run"):
        run_commands(here, "rm -r x")
    with pytest.raises(AssertionError, match="fedaction data import none"):
        run_commands(here, "fedaction data import none")


def test_a_block_that_is_not_closed_is_an_error():
    with pytest.raises(AssertionError, match="line 2 is not closed"):
        python_blocks("```python\nx = 1\n")
