"""How long the rest of some work may take, in a progress bar."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class TimeLeftColumn(ProgressColumn):
    """What a task's `pace` says. Rich's own column knows nothing where a round takes more than half a minute."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """See rich."""
        return Text(task.fields["pace"].say_left(), style="progress.remaining")
