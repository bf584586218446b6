"""Build wheel and sdist, check them, and run the demo from the wheel outside of the clone.

    python tools/package.py             # a fresh environment with everything that pip installs
    python tools/package.py --shared    # the dependencies of this environment: faster, for CI

The wheel is built from the sdist, so that both hold what they need. The new environment has srfca
from the wheel alone: it is used in a temporary folder, and the script fails if srfca is imported
from anywhere else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "src/srfca/"
CONSUMER = """\
from srfca import SRFCA, LocalTraining, Partition, Result

local = LocalTraining(steps=10, batch_size=10, lr=0.5)
method: SRFCA = SRFCA(local=local)
partition: Partition = Result.load("run").partition
labels: str = Result.load("run").partition  # type: ignore[assignment]
"""
"""Type checking of this finds srfca's types: the ignored line is an error, and no other one is."""


def main() -> int:
    """Run all steps, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", action="store_true", help="use what is installed here")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()

        def done(text: str) -> None:
            print(f"{time.monotonic() - start:6.1f} s  {text}", flush=True)

        sdist, wheel = build(arguments.out)
        done(f"built {sdist.name} and {wheel.name}")
        check(sdist, wheel)
        done("checked metadata and contents")
        python = make_environment(folder / "environment", wheel, arguments.shared)
        done("installed the wheel in a new environment")
        check_command(python, folder)
        done("srfca --version, --help and list work")
        run_demo(python, folder, quick=arguments.shared)
        done("the demo ran, and wrote its report")
        if not arguments.shared:
            check_types(python, folder)
            done("the wheel has types")
    return 0


def build(out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return their paths."""
    run(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT), cwd=ROOT)
    newest = [max(out.glob(p), key=os.path.getmtime) for p in ("*.tar.gz", "*.whl")]
    return newest[0], newest[1]


def check(sdist: Path, wheel: Path) -> None:
    """Check metadata as package indexes do, and that no file is missing.

    Raises:
        SystemExit: If something is wrong.
    """
    run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel), cwd=ROOT)
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as tar:
        in_sdist = {name.partition("/")[2] for name in tar.getnames()}
    problems = missing(tracked_files(), in_wheel, in_sdist)
    if problems:
        raise SystemExit("\n".join(problems))


def missing(tracked: list[str], in_wheel: set[str], in_sdist: set[str]) -> list[str]:
    """Return what is missing in a wheel or an sdist, or should not be there.

    Args:
        tracked: The files of the repository.
        in_wheel: The files of the wheel.
        in_sdist: Those of the sdist, without its folder.

    Returns:
        A line for each problem.

    Examples:
        >>> missing(["src/srfca/py.typed"], {"tests/a.py"}, {"src/srfca/py.typed", "PKG-INFO"})
        ['not in the wheel: srfca/py.typed', 'not part of srfca, but in the wheel: tests/a.py']
    """
    sources = [path.removeprefix("src/") for path in tracked if path.startswith(SOURCES)]
    problems = [f"not in the wheel: {path}" for path in sources if path not in in_wheel]
    problems += [f"not in the sdist: {path}" for path in tracked if path not in in_sdist]
    for path in sorted(in_wheel):
        if path not in sources and ".dist-info/" not in path:
            problems.append(f"not part of srfca, but in the wheel: {path}")
    return problems


def tracked_files() -> list[str]:
    """Return the files of the repository, also new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def make_environment(folder: Path, wheel: Path, shared: bool) -> Path:
    """Install the wheel in a new environment, and return its Python.

    Args:
        folder: The new environment.
        wheel: What is installed.
        shared: Whether dependencies are those of this environment, instead of new ones.
    """
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    if shared:
        run(*pip, "--no-deps", str(wheel), cwd=folder)
        share_packages(folder)
        return python
    pip += ["--constraint", str(ROOT / "constraints.txt")]
    run(*pip, "torch", cwd=folder)
    run(*pip, f"{wheel}[report]", cwd=folder)
    return python


def share_packages(folder: Path) -> None:
    """Put the packages of this environment on the path of another one, after its own.

    What is left out is srfca itself, and numba, whose kernels take half a minute to compile.
    """
    shared = folder / "shared"
    shared.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("srfca", "_editable", "__editable", "_srfca", "numba")):
            (shared / path.name).symlink_to(path)
    [site] = folder.glob("lib/python3*/site-packages")
    (site / "shared.pth").write_text(f"{shared}\n")


def check_command(python: Path, folder: Path) -> None:
    """Check that srfca is that of the wheel, and that its command works.

    Raises:
        SystemExit: If it is not.
    """
    code = "import srfca; print(srfca.__file__); print(srfca.__version__)"
    place, version = run(str(python), "-c", code, cwd=folder).split()
    if not Path(place).is_relative_to(folder):
        raise SystemExit(f"srfca was imported from {place}, not from the wheel")
    command = str(python.parent / "srfca")
    printed = run(command, "--version", cwd=folder).strip()
    if printed != f"srfca {version}":
        raise SystemExit(f"srfca --version printed {printed!r}, but the version is {version}")
    run(command, "--help", cwd=folder)
    run(command, "list", cwd=folder)


def run_demo(python: Path, folder: Path, quick: bool) -> None:
    """Run the command of ``make demo``.

    Raises:
        SystemExit: If there is no report.
    """
    command = [str(python.parent / "srfca"), "compare", "rotated-digits", "--methods"]
    print(run(*command, demo_methods(), "--report", "demo.html", *["--quick"] * quick, cwd=folder))
    if (folder / "demo.html").stat().st_size < 100_000:
        raise SystemExit("demo.html is nearly empty")


def check_types(python: Path, folder: Path) -> None:
    """Check that mypy finds srfca's types in the environment."""
    (folder / "consumer.py").write_text(CONSUMER)
    run(
        sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable",
        str(python), "consumer.py", cwd=folder,
    )  # fmt: skip


def run(*command: str, cwd: Path) -> str:
    """Run a command that must succeed, without the clone's sources, and return what it prints.

    Raises:
        SystemExit: If it fails.
    """
    hidden = ("PYTHONPATH", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def demo_methods() -> str:
    """Return the methods of ``make demo``."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    return next(line.partition(":= ")[2] for line in lines if line.startswith("DEMO :="))


if __name__ == "__main__":
    sys.exit(main())
