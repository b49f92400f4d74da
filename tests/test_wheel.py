"""The project as people without a checkout have it: built, installed, and used from an empty folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = ["rounds=1", "baselines=[]", "controls=[]", "stage_train=[4]", "stage_test=4", "stage_actions=[2]", "frames=8"]
TINY += ["model_width=4", "model_units=[1, 1, 1]", "model_projection=4", "workers=1", "device=cpu"]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Path:
    """The folder of commands of a fresh environment that has the project's wheel, and what it needs from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    # A copy of what a build reads, since a build writes beside it.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "wheels", "."]
    subprocess.run(build, cwd=folder, check=True, capture_output=True, timeout=120)
    [wheel] = (folder / "wheels").glob("fedaction-*.whl")

    home = folder / "environment"
    venv.EnvBuilder().create(home)
    binaries = home / ("Scripts" if os.name == "nt" else "bin")
    python = binaries / Path(sys.executable).name
    if not python.exists():
        python = next(binaries.glob("python*"))
    install = [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=120)
    # Torch and the rest are this environment's: they come after the fresh one's own, so that its fedaction is found.
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (own / "parent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return binaries


def settings() -> dict[str, str]:
    """The surroundings of a command, without what points to the checkout."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "COLUMNS")}


def test_the_wheel_runs_the_demo_from_an_empty_folder(scripts, tmp_path):
    """Three runs at once without --out, which also must not take one folder."""
    demo = [str(scripts / "fedaction"), "run", "fsar/demo", *(word for key in TINY for word in ("--set", key))]
    runs = [
        subprocess.Popen(
            demo, cwd=tmp_path, env=settings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    ends = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], ends
    folders = sorted((tmp_path / "runs").iterdir())
    assert [folder.name for folder in folders] == ["fsar-demo-1", "fsar-demo-2", "fsar-demo-3"]
    for folder in folders:
        assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!")
        assert (folder / "result.json").is_file()


def test_the_wheel_has_recipes_and_programs_and_is_what_is_imported(scripts, tmp_path):
    words = [str(scripts / "fedaction"), "recipes"]
    listed = subprocess.run(words, cwd=tmp_path, env=settings(), check=True, capture_output=True, text=True).stdout
    sources = sorted(
        path.relative_to(ROOT / "src/fedaction/recipes").with_suffix("").as_posix()
        for path in (ROOT / "src/fedaction/recipes").rglob("*.toml")
    )
    assert [line.split()[0] for line in listed.splitlines()[1:]] == sources
    python = next(path for path in scripts.glob("python*") if path.stem in ("python", "python3"))
    where = "import fedaction; print(fedaction.__file__)"
    found = subprocess.run([python, "-c", where], cwd=tmp_path, env=settings(), capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(scripts.parent), found
    programs = sorted(path.name for path in (ROOT / "src/fedaction/bench/programs").glob("*.py"))
    assert sorted(path.name for path in Path(found.strip()).parent.glob("bench/programs/*.py")) == programs
