"""The examples of the documents: programs run, command lines are accepted, and launch.md has every option."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from launching import DEADLINE_S, HORO, ROOT, clean_environment, horo

sys.path.insert(0, str(ROOT / "tools"))

import ranks  # noqa: E402

MAIN_OBJECT = "CMakeFiles/mine.dir/main.cc.o"
PROGRAM = ROOT / "tests/python/programs/document_examples.py"
WITH_PROGRAMS = [ROOT / name for name in ("README.md", *(f"docs/{page}.md" for page in ("quickstart", "from_torch")))]
WITH_PROGRAMS.append(ROOT / "docs/torch_distributed.md")
DOCUMENTS = [ROOT / "README.md", ROOT / "bench/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document, language):
    """Of a document: (line, text) of each block of code in this language."""
    text = document.read_text()
    for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, found.start()) + 1, found[1]


def test_every_program_of_the_documents_runs_on_two_ranks(tmp_path):
    job = [HORO, "run", "-n", "2", ranks.start.python(), str(PROGRAM), *map(str, WITH_PROGRAMS)]
    env = clean_environment({"OMP_NUM_THREADS": "1"})
    done = subprocess.run(job, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [f"ran {document}:{line}" for document in WITH_PROGRAMS for line, _ in blocks(document, "python")]
    assert len(expected) >= 8
    for rank in range(2):
        assert re.findall(rf"^\[{rank}\] (ran .*)$", done.stdout, re.M) == expected


def loss_of_gpt(folder, *arguments):
    small = ["--steps", "40", "--layers", "1", "--width", "64", "--length", "32", *arguments]
    job = [HORO, "run", "-n", "2", ranks.start.python(), str(ROOT / "examples/gpt.py"), *small]
    env = clean_environment({"OMP_NUM_THREADS": "1"})
    done = subprocess.run(job, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(r"loss on unseen text (\S+) nats", done.stdout)[1])


def test_the_example_of_a_gpt_learns_on_two_ranks_in_each_stage_of_zero(tmp_path):
    loss = loss_of_gpt(tmp_path)
    assert loss < 3.8  # without training 5.5
    assert [loss_of_gpt(tmp_path, "--zero", stage) for stage in "123"] == [loss] * 3


@pytest.mark.parametrize("document", ["README.md", "docs/install.md"])
def test_the_packages_to_install_are_those_that_the_build_needs(document):
    text = (ROOT / document).read_text()
    listed = set(re.search(r"apt-get install [^\n]*\\\n(?:.*\\\n)*.*", text)[0].replace("\\", " ").split())
    needs = re.findall(r"horo_needs\(\"[^\"]*\" (\S+)", (ROOT / "requirements.cmake").read_text())
    assert len(needs) >= 12
    assert {name for name in needs if name not in ("libgtest-dev", "libgmock-dev")} - listed == set()
    assert {"g++", "cmake", "ninja-build", "python3-venv", "git", "ca-certificates"} - listed == set()


def test_the_program_in_c_builds_against_the_installed_library(tmp_path):
    ((_, source),) = blocks(ROOT / "docs/install.md", "c")
    (tmp_path / "sum.c").write_text(source)
    find = [sys.executable, "-c", "import horo, os; print(os.path.dirname(horo.__file__))"]
    library = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    strict = ["gcc", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "bindings/c", "sum.c", "-o", "sum"]
    subprocess.run([*strict, "-L", library, "-lhoro", f"-Wl,-rpath,{library}"], cwd=tmp_path, check=True)
    done = horo("run", "-n", 3, tmp_path / "sum")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] rank {rank} of 3: 3 3" for rank in range(3)]


def test_a_project_in_cpp_configures_and_compiles_with_the_headers_of_this_one(tmp_path):
    ((_, project),) = blocks(ROOT / "docs/install.md", "cmake")
    (tmp_path / "CMakeLists.txt").write_text(project.replace("path/to/horo", str(ROOT)))
    shutil.copy(ROOT / "examples/all_reduce.cc", tmp_path / "main.cc")
    for step in (["cmake", "-S", ".", "-B", "build", "-G", "Ninja"], ["ninja", "-C", "build", MAIN_OBJECT]):
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stdout + done.stderr


def command_lines():
    """Lines of code that start a job, without their comments; not those with words that stand for others."""
    for document in DOCUMENTS:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            found = re.match(r"(?:    )?((?:[A-Z_]+=\S+ )*horo run -[^#]*)(?:#.*)?$", line)
            if found and "[OPTIONS]" not in line and "..." not in line:
                yield f"{document.relative_to(ROOT)}:{number}", found[1].strip()


def test_every_command_line_of_the_documents_is_accepted(tmp_path):
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    ((_, options),) = blocks(ROOT / "docs/launch.md", "yaml")
    (tmp_path / "job.yaml").write_text(options)
    lines = list(command_lines())
    assert len(lines) >= 15
    address, refused = ranks.free_address(), []
    for place, line in lines:
        words = shlex.split(line)
        at = words.index("run") + 1
        here = ["--addr", "10.0.0.1:29400"] * ("-H" in words)  # names of hosts in examples do not resolve
        words = ["env", *words[: at - 2], HORO, "run", "--dry-run", *here, *words[at:]]
        words = [address if word == "10.0.0.1:29400" else word for word in words]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
        if done.returncode != 0:
            refused.append(f"{place}: {line}: {done.stderr}")
    assert refused == []


def options_of_the_help():
    """Every spelling of every option, and of each option its spellings."""
    text = horo("run", "--help").stdout
    for line in text.splitlines():
        found = re.match(r"  (-[-\w]+(?:,-[-\w]+)*)", line)
        if found and not line.startswith("  horo"):
            yield found[1].split(",")


@pytest.fixture(scope="module")
def launch_page():
    text = re.sub(r"^## Words of torchrun\n.*?(?=^## )", "", (ROOT / "docs/launch.md").read_text(), flags=re.M | re.S)
    rows = text.splitlines()
    return {word for row in rows if row.startswith("| `-") for word in re.findall(r"`(-[-\w]+)", row.split(" | ")[0])}


def test_launch_md_has_every_option_and_no_other(launch_page):
    options = list(options_of_the_help())
    assert len(options) >= 25
    assert [names for names in options if not set(names) & launch_page] == []
    spellings = {name for names in options for name in names} | {"-np", "-h"}  # replaced before the options are read
    assert launch_page - spellings == set()


def heading_anchors(document):
    """The anchors that a browser of the repository and mkdocs give to headings."""
    for title in re.findall(r"^#+ (.*)$", document.read_text(), re.M):
        words = re.sub(r"[^\w\s-]", "", title.lower().replace("`", ""))
        yield re.sub(r"\s", "-", words.strip())


def test_every_link_of_the_documents_leads_to_a_file_and_a_heading():
    lost = []
    others = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    for document in [*DOCUMENTS, *others]:
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`(?!\])", "", text)):
            place, _, anchor = target.partition("#")
            if ":" in target:
                continue
            file = (document.parent / place).resolve() if place else document
            if not file.exists() or (anchor and anchor not in heading_anchors(file)):
                lost.append(f"{document.relative_to(ROOT)}: {target}")
    assert lost == []


def test_the_readme_links_each_document_that_it_names():
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`([\w/.]+\.md)`", re.sub(r"\[[^\]]*\]\([^)]*\)", "", text)))
    assert named == set()
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - linked_from(ROOT / "README.md") == set()


def linked_from(document):
    """Names of the documents that it links, or that one of these links."""
    found, todo = set(), [document]
    while todo:
        here = todo.pop()
        for target in re.findall(r"\]\(([^)#:]+\.md)[)#]", here.read_text()):
            file = pathlib.Path(here.parent / target).resolve()
            if file not in found and file.exists():
                found.add(file)
                todo.append(file)
    return {file.name for file in found}
