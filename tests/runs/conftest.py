"""One launcher for all tests here: it takes seconds to load torch."""

from collections.abc import Iterator

import pytest

from tests.runs.commands import Launcher


@pytest.fixture(scope="session")
def launcher(tmp_path_factory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.close()
