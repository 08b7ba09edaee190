#!/usr/bin/env python3
"""Every task of this project, from a bare clone on: `python3 tasks.py` lists them.

Needs Python 3.11 or newer and nothing else. Each task first brings the virtual environment `.venv` up to date from
`requirements.lock`, with hashes, through pip as this machine has it configured; when nothing has changed since,
that takes a few milliseconds. CI calls the same tasks.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python parses this whole file, to be told so
    needs = f"memory_engine needs Python 3.11 or newer, and this is {sys.version.split()[0]}: "
    sys.exit(needs + "try `python3.11 tasks.py` and so on, or get one from your system's packages, pyenv or python.org")

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

MYPY = "mypy memory_engine tests benchmarks examples website conftest.py tasks.py"
# What a task runs in `.venv`; further words on the command line go to its first command.
COMMANDS = {
    "demo": ["memory-engine demo"],
    "pytest": ["python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder"],
    "environments": ["python -m tests.integrations.environments"],
    "coverage": ["python -m coverage run -m pytest", "python -m coverage report"],
    "docs": ["python -m pytest README.md docs"],
    "site": ["python -m website"],
    "lint": ["ruff check .", "ruff format --check .", "lint-imports"],
    "fix": ["ruff check --fix .", "ruff format ."],
    "types": [MYPY, "pyright"],
    "mypy": [MYPY],
    "pyright": ["pyright"],
    "sync": ["python -m tests.sync_stub"],
    "bench": ["python -m benchmarks"],
    "quick": ["python -m benchmarks --quick"],
    "quicktest": ["python -m pytest benchmarks"],
    "soak": ["python -m tests.soak"],
    "simulate": ["python -m tests.simulator"],
}
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
INSTALLERS = min(4, os.cpu_count() or 1)
NEWEST_MINOR = 14  # of the Pythons that the wheel is checked with, where they can be had
LOCK_HEAD = "# Made by `python3 tasks.py lock`; do not edit. Names no index: pip's configuration does.\n\n"
BEYOND_BASE = "\n# Beyond what the wheel needs: the inspector, whose command ends the demo.\n\n"
BEYOND_DEMO = "\n# Beyond what `demo` needs: the light extras, and what tests and checks need.\n\n"


class TaskError(Exception):
    """A task cannot go on; the message says why and, where it can, what to do."""


def say(text: str) -> None:
    """Print progress at once, so that it stands in order with what a child prints."""
    print(f"==> {text}", flush=True)


def run(name: str, *words: str | Path, venv: Path = VENV, cwd: Path = ROOT) -> None:
    """Run a program of a virtual environment with this terminal's output; raise `TaskError` if it fails."""
    command = [shutil.which(name, path=venv / ("Scripts" if os.name == "nt" else "bin")) or name, *words]
    # Another project's modules must not stand in for ours, nor its environment for the one made here.
    # Nor may each of several hundred children compile what it imports: an environment without bytecode is slow.
    foreign = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in foreign}
    # hnswlib is compiled for any processor of this kind: pip keeps what it built, perhaps for another machine.
    env["HNSWLIB_NO_NATIVE"] = "1"
    try:
        subprocess.run(command, cwd=cwd, env=env, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else error
        raise TaskError(f"`{' '.join(map(str, (name, *words)))}` failed: {why}") from None


def pip_install(*words: str | Path, venv: Path = VENV) -> None:
    """Install as the machine's own pip configuration says: indexes, proxies."""
    run("python", "-m", "pip", "--disable-pip-version-check", "-qq", "install", *words, venv=venv)


def install_pins(pins: list[str], *how: str, venv: Path = VENV) -> None:
    """Install pinned packages, each file checked against its hashes, by several pips: one keeps one core busy."""
    shares = [pins[first::INSTALLERS] for first in range(min(INSTALLERS, len(pins)))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(INSTALLERS) as pool:

        def install(number: int, share: list[str]) -> None:
            file = Path(folder, f"requirements-{number}.txt")
            file.write_text("".join(share), "utf-8")
            # What is imported is compiled then, which is less than half of what there is.
            pip_install("--require-hashes", "--no-deps", "--no-compile", *how, "-r", file, venv=venv)

        for _ in pool.map(install, range(len(shares)), shares):
            pass


def pins_in(text: str) -> list[str]:
    """Return the entries of a lock file's text: each a pinned package with its hashes."""
    return re.findall(r"^\w.*\n(?: .*\n)*", text, re.MULTILINE)


def pins_for(task: str) -> list[str]:
    """Return the pins of what a task needs: a first part of the lock, or all but what this machine has no use for."""
    locked = LOCK.read_text("utf-8")
    if task in ("demo", "wheel's base"):
        return pins_in(locked.partition(BEYOND_DEMO if task == "demo" else BEYOND_BASE)[0])
    compilers, browsers = ("c++", "g++", "clang++", "cl"), ("chromium", "chromium-browser", "google-chrome")
    left_out = []
    if not (any(map(shutil.which, compilers)) and Path(sysconfig.get_path("include"), "Python.h").is_file()):
        say("no C++ compiler, or no header files of Python: hnswlib is left out, and tests that need it are skipped")
        left_out.append("hnswlib")
    if not (any(map(shutil.which, browsers)) or "MEMORY_ENGINE_CHROMIUM" in os.environ):
        say("no Chromium: Playwright is left out, and the tests of the inspector's page are skipped")
        left_out += ["axe-playwright-python", "playwright"]
    return [pin for pin in pins_in(locked) if pin.split("==")[0] not in left_out]


def provide(pins: list[str]) -> None:
    """Bring `.venv` to these pins and to this checkout, if it is not there yet."""
    settings, ours = VENV / "pyvenv.cfg", "{}.{}".format(*sys.version_info)
    made = re.search(r"\nversion\w* *= *(\d+\.\d+)", settings.read_text("utf-8") if settings.exists() else "")
    if made and made[1] != ours:
        raise TaskError(f"{VENV} is of Python {made[1]} and this is {ours}: start this with that one, or delete {VENV}")
    note = VENV / "installed-by-tasks.txt"  # empty while something is being installed
    held = note.read_text("utf-8") if note.exists() else None
    if not held:
        say(f"making a virtual environment in {VENV}")
        # What a killed pip leaves may look installed and not be whole.
        run(sys.executable, "-m", "venv", *(["--clear"] if held == "" else []), VENV)
    package = f"# {ROOT} {hashlib.sha256((ROOT / 'pyproject.toml').read_bytes()).hexdigest()}\n"
    if not held or not all(text in held for text in (package, *pins)):
        say(f"installing {len(pins)} locked packages, and memory_engine from here (the first time takes a while)")
        note.write_text("", "utf-8")
        compiled = [pin for pin in pins if pin.startswith("hnswlib==")]
        install_pins([pin for pin in pins if pin not in compiled], "--only-binary", ":all:")
        if compiled:
            install_pins(compiled, "--no-build-isolation")
        pip_install("--no-deps", "--no-build-isolation", "--editable", ROOT)
        note.write_text("".join((package, *pins)), "utf-8")


@contextmanager
def built() -> Iterator[tuple[Path, Path]]:
    """A temporary folder, and the one in it that has the wheel and the source distribution."""
    with tempfile.TemporaryDirectory(prefix="memory-engine-wheel-") as folder:
        source, dist = (Path(folder, part) for part in ("source", "dist"))
        # A copy: setuptools leaves build/ behind and would pack what an earlier build left there.
        left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
        shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
        run("python", "-m", "build", "--quiet", "--no-isolation", "--outdir", dist, source)
        yield Path(folder), dist


def wheel() -> None:
    """Build the distributions, install the wheel elsewhere, with each Python that is here, and check what came out."""
    with built() as (folder, dist):
        fresh = folder / "venv"
        for python in (Path(sys.executable), *other_pythons()):
            say(f"the wheel with {python}")
            run(str(python), "-m", "venv", "--clear", fresh)
            install_pins(pins_for("wheel's base"), "--only-binary", ":all:", venv=fresh)
            pip_install("--no-deps", *dist.glob("*.whl"), venv=fresh)
            run("python", "-m", "pip", "check", venv=fresh)
            run("python", "-I", ROOT / "tests" / "wheel_check.py", ROOT, venv=fresh, cwd=folder)
            run("memory-engine", "demo", venv=fresh, cwd=folder)


def release() -> None:
    """Put what is published into `dist/`: wheel, source, bill of materials, hashes; checked as an index does."""
    version = re.search(r'(?m)^version = "(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    if not version or f"## {version[1]}" not in re.findall(
        r"(?m)^## [\d.]+", (ROOT / "CHANGELOG.md").read_text("utf-8")
    ):
        raise TaskError(
            "CHANGELOG.md has no section for the version in pyproject.toml: give *Unreleased* its number and date"
        )
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    with built() as (folder, dist), fetched("twine", "cyclonedx-bom", "pypi-attestations") as tools:
        needed = folder / "needed.txt"
        needed.write_text("".join(pins_for("wheel's base")), "utf-8")
        bill = dist / "sbom.cdx.json"
        how = "--mc-type library --short-PURLs --output-reproducible --pyproject".split()
        run("cyclonedx-py", "requirements", *how, ROOT / "pyproject.toml", "-o", bill, needed, venv=tools)
        packages = [*dist.glob("*.whl"), *dist.glob("*.tar.gz")]
        run("twine", "check", "--strict", *packages, venv=tools)
        if "ACTIONS_ID_TOKEN_REQUEST_URL" in os.environ:
            run("python", "-m", "pypi_attestations", "sign", *packages, venv=tools)
        else:
            say("no attestations: only a build service that vouches for its runs has the identity to sign them with")
        hashes = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in (*packages, bill)}
        (dist / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in hashes.items()), "utf-8")
        shutil.copytree(dist, target)
    say(f"{version[1]} is in {target}: " + ", ".join(sorted(one.name for one in target.iterdir())))


def other_pythons() -> list[Path]:
    """Return the newer interpreters that this machine has, one of each minor version; those of pyenv need no shim."""
    found = []
    for minor in range(sys.version_info.minor + 1, NEWEST_MINOR + 1):
        on_path = shutil.which(f"python3.{minor}")
        managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
        for place in (*([Path(on_path)] if on_path else []), *sorted(managed.glob(f"3.{minor}.*/bin/python"))):
            if not subprocess.run([place, "-c", "import venv"], capture_output=True, check=False).returncode:
                found.append(place)
                break
    return found


def install() -> None:
    """Bring `.venv` up to date, and no more; every other task does so first."""


def test(*words: str) -> None:
    """Make the environments of adapters, then run the suite; `--quick`: each short test once; `--deep`: more cases."""
    if "--deep" in words:
        os.environ["MEMORY_ENGINE_LAWS"] = "thorough"
        words = tuple(word for word in words if word != "--deep")
    part = [word for word in words if not word.startswith("-") and (ROOT / word.partition("::")[0]).exists()]
    if not part and "--quick" not in words:
        do("environments")
    do("pytest", *words)


def verdict(task: str) -> str:
    """Do a task in a process of its own, show what it printed when it ends, and return a line that says how."""
    begun = time.monotonic()
    command = [sys.executable, __file__, *task.split()]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    say(f"{task}\n{ended.stdout}")
    return f"{'FAILED' if ended.returncode else 'passed'} {time.monotonic() - begun:6.1f} s  {task}"


def check() -> None:
    """Do all checks but the tests, to the end even if one fails."""
    with ThreadPoolExecutor(2) as pool:
        # the longest first, so that none is waited for alone at the end
        verdicts = list(pool.map(verdict, ("mypy", "pyright", "quicktest", "wheel", "docs", "site", "lint")))
    say("\n".join(["check", *verdicts]))
    if any(line.startswith("FAILED") for line in verdicts):
        raise TaskError("a check failed")


@contextmanager
def fetched(*packages: str) -> Iterator[Path]:
    """A folder with an environment that has these packages, fetched for now."""
    if "PIP_INDEX_URL" in os.environ:  # uv does not read pip's configuration; the index, at least, must be the same
        os.environ["UV_DEFAULT_INDEX"] = os.environ["PIP_INDEX_URL"]
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        pip_install(*packages, venv=Path(folder))
        yield Path(folder)


HOW = "--universal --python-version 3.11 --generate-hashes --quiet --no-header"


def compile_lock(uv: Path, asked: str, target: Path, *words: str) -> list[str]:
    """Write what is asked for into a lock file, and return its pins."""
    run("uv", *f"pip compile {asked} {HOW} -o".split(), target, *words, venv=uv)
    return pins_in(target.read_text("utf-8"))


def lock_peer(uv: Path, peer: Path, *words: str) -> None:
    """Write the lock of a framework that has an adapter, beside its `.in` file."""
    target = peer.with_suffix(".lock")
    asked = f"pyproject.toml --extra {peer.stem} --group peer tests/integrations/{peer.name}"
    target.write_text("".join((LOCK_HEAD, *compile_lock(uv, asked, target, *words))), "utf-8")


def asked_peers() -> list[Path]:
    """Return the `.in` files of the frameworks that have an adapter."""
    return sorted((ROOT / "tests" / "integrations").glob("*.in"))


def lock(*words: str) -> None:
    """Write the lock files anew, with a uv fetched for it; `--upgrade` takes newer versions."""
    with fetched("uv") as folder:

        def compiled(asked: str, target: Path) -> list[str]:
            return compile_lock(folder, asked, target, *words)

        pins = compiled("pyproject.toml --extra all --group dev", LOCK)
        parts: list[str] = [LOCK_HEAD]
        for extra, beyond in (("", BEYOND_BASE), ("--extra inspect", BEYOND_DEMO)):
            asked = f"pyproject.toml {extra} --group build -c requirements.lock"
            names = {pin.split()[0] for pin in compiled(asked, folder / "part")}
            parts += [pin for pin in pins if pin.split()[0] in names]
            parts.append(beyond)
            pins = [pin for pin in pins if pin.split()[0] not in names]
        LOCK.write_text("".join((*parts, *pins)), "utf-8")
        for peers in (ROOT / "benchmarks").glob("*.in"):
            target = peers.with_suffix(".lock")
            target.write_text("".join((LOCK_HEAD, *compiled(f"benchmarks/{peers.name}", target))), "utf-8")
        for peer in asked_peers():
            lock_peer(folder, peer, *words)


def newest(*names: str) -> None:
    """Test the adapters, or those named, with the newest releases of their frameworks; a lock that fails stays.

    The lock of a framework whose tests pass, or that cannot be resolved, is put back as it was.
    """
    failed: list[str] = []
    with fetched("uv") as folder:
        for peer in asked_peers():
            if names and peer.stem not in names:
                continue
            target = peer.with_suffix(".lock")
            held = target.read_text("utf-8")
            try:
                lock_peer(folder, peer, "--upgrade")
            except TaskError as error:
                say(f"{peer.stem}: {error}")
                failed.append(peer.stem)
                target.write_text(held, "utf-8")
                continue
            newer = sorted({pin.split()[0] for pin in pins_in(target.read_text("utf-8"))} - set(held.split()))
            say(f"{peer.stem}: {', '.join(newer) or 'nothing newer'}")
            if not newer or passes(peer.stem):
                target.write_text(held, "utf-8")
            else:
                failed.append(peer.stem)
    if failed:
        raise TaskError(f"the newest releases need work: {', '.join(failed)}")


def passes(peer: str) -> bool:
    """Make the environment of a framework's lock, run its adapter's tests in it, and return whether they pass."""
    test_of_peer = f"tests/integrations/test_peers.py::test_an_adapter_does_what_its_peer_expects[{peer}]"
    try:
        do("environments")
        run("python", "-m", "pytest", "-q", "-n", "0", test_of_peer)
    except TaskError as error:
        say(f"{peer}: {error}")
        return False
    return True


OTHER_PEERS = ("crewai",)
"""Frameworks without an adapter that are to be installed beside this package, too."""


def peers() -> None:
    """Resolve each framework beside this package; fail where an older version is chosen than without it."""
    asked = {path.stem: path for path in asked_peers()}
    old: list[str] = []
    with fetched("uv") as folder:

        def resolved(where: Path, *words: str) -> dict[str, str]:
            """The versions that are chosen, by name."""
            how = "--python-version 3.11 --quiet --no-header --no-annotate -o"
            run("uv", "pip", "compile", where, *words, *how.split(), folder / "chosen", venv=folder)
            found = re.findall(r"(?m)^([\w.-]+)==(\S+)", (folder / "chosen").read_text("utf-8"))
            (folder / "chosen").unlink()
            return dict(found)

        for name in OTHER_PEERS:
            asked[name] = folder / f"{name}.in"
            asked[name].write_text(name, "utf-8")
        for name, path in asked.items():
            extra = () if name in OTHER_PEERS else ("--extra", name)
            beside, alone = resolved(path, "pyproject.toml", *extra), resolved(path)
            for package in re.findall(r"(?m)^([\w-]+)", path.read_text("utf-8")):
                is_old = beside[package] != alone[package]
                say(f"{package} {beside[package]}{f', {alone[package]} without this package' if is_old else ''}")
                old += [package] if is_old else []
    if old:
        raise TaskError(
            f"an old version is chosen beside this package, whose requirements do not fit: {', '.join(old)}"
        )


FUNCTIONS = {
    "install": install,
    "test": test,
    "wheel": wheel,
    "release": release,
    "check": check,
    "lock": lock,
    "newest": newest,
    "peers": peers,
}


def do(task: str, *words: str) -> None:
    """Run the commands of a task, the first of them with these words."""
    for number, command in enumerate(COMMANDS[task]):
        run(*command.split(), *(() if number else words))


def main(task: str = "", *words: str) -> int:
    """Do the task that the command line names, and return the exit code."""
    if task not in {*COMMANDS, *FUNCTIONS}:
        print("python3 tasks.py TASK [words for its first command]\n")
        print(*(f"  {name:<12} {'; '.join(commands)}" for name, commands in COMMANDS.items()), sep="\n")
        print(*(f"  {name:<12} {function.__doc__}" for name, function in FUNCTIONS.items()), sep="\n")
        return 0 if task in ("-h", "--help") else 2
    begun = time.monotonic()
    try:
        if task not in ("lock", "peers"):
            provide(pins_for(task))
        if task in FUNCTIONS:
            FUNCTIONS[task](*words)
        else:
            do(task, *words)
    except TaskError as error:
        print(f"tasks.py: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"{task}: done in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
