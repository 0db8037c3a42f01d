"""Style that a machine can check, run as a test: sizes, docstrings, names, and words that must not be here.

The numbers are tripwires against a long tail, not targets: a function split only to please them is worse than
the long one. Generated `*_pb2` files are left aside. Every message names the offender.
"""

from __future__ import annotations

import ast
import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
"""`make check` runs it by itself."""

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gpuyard"

FUNCTION_LINES_P95 = 45
FUNCTION_LINES_MAX = 70
FILE_LINES_P95 = 450
PARAMETERS_MAX = 6
ROOM_MODULES_MAX = 13

NO_SUCH_ROOMS = {"utils", "util", "helpers", "helper", "misc"}
CLICK_DECORATORS = {"command", "group", "option", "argument", "pass_context", "pass_obj", "version_option"}
REGISTRIES = {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org"}
LOCK_FILES = {"uv.lock", "package-lock.json", "pyproject.toml", ".npmrc", "uv.toml", "pip.conf"}

# Written in pieces, or this file would be its own first offender.
MACHINE_PATHS = re.compile(r"(?<![\w.\-])/(?:" + "work|root" + r")/")
SQL = re.compile(r"\b(?:SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM) ?\b")
FETCHED_FROM = re.compile(r"""(?:registry|index|url|resolved)["']?\s*[=:]\s*["']?https?://([^/"'\s]+)""")

COUNTABLE = "GPU|NVLink|job|task|node|pod|gang|queue|place|member|device|slice|notice|group|file|time|retry|step|cycle"
PLURAL = re.compile(rf" (?:(?:more|other|free|idle|whole|waiting|different|NUMA) )?(?:{COUNTABLE})s\b")
NO_NUMBER = re.compile(r"name|kind|folder|\bof\b")


@dataclass(frozen=True)
class Function:
    """One function as the budget sees it."""

    where: str
    lines: int
    parameters: int
    is_callback: bool


# --- the checks ----------------------------------------------------------------------------------


def test_no_function_is_longer_than_the_tripwire():
    assert too_long(functions(SOURCE)) == []


def test_functions_keep_a_small_tail():
    found = functions(SOURCE)
    tail = sorted((f for f in found if f.lines > FUNCTION_LINES_P95), key=lambda f: -f.lines)
    assert p95([f.lines for f in found]) <= FUNCTION_LINES_P95, listed(f"{f.where}: {f.lines}" for f in tail)


def test_files_keep_a_small_tail():
    sizes = {path: len(path.read_text().splitlines()) for path in modules(SOURCE)}
    tail = sorted(((n, path) for path, n in sizes.items() if n > FILE_LINES_P95), reverse=True)
    assert p95(list(sizes.values())) <= FILE_LINES_P95, listed(f"{shown(path)}: {n}" for n, path in tail)


def test_parameters_are_few():
    assert too_many_parameters(functions(SOURCE)) == []


def test_every_module_has_a_docstring():
    assert [shown(path) for path in modules(SOURCE) if not has_docstring(path)] == []


def test_every_folder_of_code_is_a_package():
    folders = {path.parent for path in modules(SOURCE)}
    assert sorted(shown(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_no_room_holds_more_modules_than_one_can_survey():
    assert crowded(SOURCE) == []


def test_no_two_classes_have_one_name():
    assert namesakes(SOURCE) == []


def test_no_module_is_a_junk_drawer():
    assert junk_drawers(SOURCE) == []


def test_sql_is_spoken_in_the_local_world_alone():
    local = SOURCE / "worlds" / "local"
    elsewhere = [path for path in modules(SOURCE) if not path.is_relative_to(local)]
    assert [hit for path in elsewhere for hit in hits(path, SQL)] == []
    assert any(hits(path, SQL) for path in modules(local))


def test_only_evacuation_says_who_is_stopped_moved_or_ended():
    brain = SOURCE / "brain"
    saying = {path.stem for path in modules(brain) if re.search(r"\b(?:Evict|Move|Terminate|Warn)\(", path.read_text())}
    assert saying == {"evacuation"}


def test_what_may_be_one_is_not_counted_in_the_plural():
    """`counted` says "1 GPU" and "2 GPUs"."""
    assert [found for path in modules(SOURCE) for found in bare_plurals(path)] == []


def test_no_file_knows_the_machine_it_was_written_on():
    assert [hit for path in repository_files() for hit in hits(path, MACHINE_PATHS)] == []


def test_lock_files_name_only_the_public_registries():
    assert [hit for path in repository_files() if path.name in LOCK_FILES for hit in foreign_hosts(path)] == []


# --- the checks, checked -------------------------------------------------------------------------


def test_a_long_function_is_named(tmp_path: Path):
    (tmp_path / "long.py").write_text("def f():\n" + "    x = 1\n" * 70)
    assert too_long(functions(tmp_path)) == [f"{tmp_path / 'long.py'}:1 f: 71 lines, {FUNCTION_LINES_MAX} allowed"]


def test_a_parameter_train_is_named_unless_click_calls_it(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "import click\n"
        "class A:\n"
        "    def fits(self, a, b, c, d, e, f): ...\n"
        "    def does_not(self, a, b, c, d, e, *, f, g): ...\n"
        "@click.command()\n"
        "def callback(a, b, c, d, e, f, g): ...\n"
    )
    assert too_many_parameters(functions(tmp_path)) == [
        f"{tmp_path / 'train.py'}:4 does_not: 7 parameters, {PARAMETERS_MAX} allowed"
    ]


def test_a_crowded_room_is_named(tmp_path: Path):
    (tmp_path / "room").mkdir()
    for i in range(ROOM_MODULES_MAX + 1):
        (tmp_path / "room" / f"m{i}.py").write_text("")
    assert crowded(tmp_path) == [f"room: {ROOM_MODULES_MAX + 1} modules, {ROOM_MODULES_MAX} allowed"]


def test_namesakes_are_named_with_their_places_unless_they_are_private(tmp_path: Path):
    (tmp_path / "a.py").write_text("class Claim: ...\nclass _Row: ...\n")
    (tmp_path / "b.py").write_text("class _Row: ...\nclass Claim: ...\n")
    assert namesakes(tmp_path) == [f"Claim: {tmp_path / 'a.py'}:1, {tmp_path / 'b.py'}:2"]


def test_generated_stubs_are_left_aside(tmp_path: Path):
    (tmp_path / "api_pb2.py").write_text("def f():\n" + "    x = 1\n" * 99)
    (tmp_path / "api_pb2_grpc.py").write_text("x = 1\n")
    assert list(modules(tmp_path)) == []


@pytest.mark.parametrize("name", ["utils.py", "helpers/__init__.py", "gpu_utils.py"])
def test_a_junk_drawer_is_named(tmp_path: Path, name: str):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('"""Things."""\n')
    assert junk_drawers(tmp_path) == [str(path)]


def test_machine_paths_and_foreign_hosts_are_named(tmp_path: Path):
    lock = tmp_path / "uv.lock"
    lock.write_text('registry = "https://mirror.example/simple"\nurl = "https://pypi.org/x"\n# at /' + "work/x\n")
    assert hits(lock, MACHINE_PATHS) == [f"{lock}:3: # at /" + "work/x"]
    assert foreign_hosts(lock) == [f"{lock}:1: mirror.example"]


def test_a_bare_plural_is_named_unless_it_is_a_constant_or_a_measure(tmp_path: Path):
    source = tmp_path / "telling.py"
    lines = (
        'f"{gpus} GPUs"',
        'f"{len(idle)} idle jobs wait"',
        'f"{MOST} jobs"',
        'f"{hours:.1f} times"',
        'f"{name} jobs"',
    )
    source.write_text("\n".join(lines))
    assert [found.partition(": ")[2] for found in bare_plurals(source)] == ["{gpus} GPUs", "{len(idle)} idle jobs"]


@pytest.mark.parametrize(("values", "expected"), [([], 0), ([7], 7), (list(range(1, 101)), 95)])
def test_p95_is_the_value_that_95_of_100_do_not_pass(values: list[int], expected: int):
    assert p95(values) == expected


# --- how they measure ----------------------------------------------------------------------------


def modules(folder: Path) -> Iterator[Path]:
    """Python files in a stable order, generated stubs aside."""
    for path in sorted(folder.rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            yield path


@cache
def parsed(text: str) -> ast.Module:
    """A module, read once for all who look at it."""
    return ast.parse(text)


def functions(folder: Path) -> list[Function]:
    """Every function and method, nested ones too. Lines run from `def` to the end, decorators aside."""
    found = []
    for path in modules(folder):
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                where = f"{shown(path)}:{node.lineno} {node.name}"
                found.append(Function(where, lines, parameters(node), is_callback(node)))
    return found


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many things a caller may pass; `self` and `cls` are not passed by anybody."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    starred = [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
    return len(names) + len(node.args.kwonlyargs) + len(starred)


def is_callback(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether click calls it: one parameter an option is then the natural shape."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name in CLICK_DECORATORS:
            return True
    return False


def too_long(found: list[Function]) -> list[str]:
    return [f"{f.where}: {f.lines} lines, {FUNCTION_LINES_MAX} allowed" for f in found if f.lines > FUNCTION_LINES_MAX]


def too_many_parameters(found: list[Function]) -> list[str]:
    return [
        f"{f.where}: {f.parameters} parameters, {PARAMETERS_MAX} allowed"
        for f in found
        if f.parameters > PARAMETERS_MAX and not f.is_callback
    ]


def has_docstring(path: Path) -> bool:
    return bool(ast.get_docstring(parsed(path.read_text())))


def crowded(folder: Path) -> list[str]:
    """Folders with too many modules, `__init__` aside."""
    counts = Counter(str(path.parent.relative_to(folder)) for path in modules(folder) if path.stem != "__init__")
    return [
        f"{room}: {n} modules, {ROOM_MODULES_MAX} allowed" for room, n in sorted(counts.items()) if n > ROOM_MODULES_MAX
    ]


def namesakes(folder: Path) -> list[str]:
    """Public classes that share a name: one name per thing, or a reader takes the one for the other."""
    places: dict[str, list[str]] = {}
    for path in modules(folder):
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{shown(path)}:{node.lineno}")
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def junk_drawers(folder: Path) -> list[str]:
    """Modules and packages named after nothing: `utils`, `gpu_helpers`, ..."""
    found = []
    for path in modules(folder):
        name = path.parent.name if path.stem == "__init__" else path.stem
        if NO_SUCH_ROOMS & set(name.split("_")):
            found.append(shown(path))
    return found


def repository_files() -> list[Path]:
    """Every file that is or could be committed; outside a checkout, every file of the usual folders."""
    listed_by_git = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed_by_git.returncode == 0:
        paths = [ROOT / name for name in listed_by_git.stdout.split("\0") if name]
    else:
        folders = ("src", "tests", "docs", "bench", "deploy", "scripts", "ui")
        paths = [*ROOT.glob("*"), *(p for folder in folders for p in (ROOT / folder).rglob("*"))]
    return sorted(path for path in paths if path.is_file())


def bare_plurals(path: Path) -> Iterator[str]:
    """Where a number that is worked out stands before a plural. A constant is known, a measure has decimals."""
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for number, after in pairwise(node.values):
                if isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant):
                    plural, told = PLURAL.match(str(after.value)), ast.unparse(number.value)
                    if plural and not (number.format_spec or told.isupper() or NO_NUMBER.search(told)):
                        yield f"{shown(path)}:{number.lineno}: {{{told}}}{plural.group()}"


def hits(path: Path, pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern occurs, as `file:line: text`. Files that are not text have no words."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    return [f"{shown(path)}:{n}: {line.strip()[:120]}" for n, line in enumerate(lines, 1) if pattern.search(line)]


def foreign_hosts(path: Path) -> list[str]:
    """Hosts that a lock file would fetch from and that not everybody can reach."""
    return [
        f"{shown(path)}:{n}: {host}"
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for host in FETCHED_FROM.findall(line)
        if host not in REGISTRIES
    ]


def p95(values: list[int]) -> int:
    """The smallest value that at least 95 % of the values do not pass."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0


def listed(lines: Iterator[str]) -> str:
    return "\n" + "\n".join(lines)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
