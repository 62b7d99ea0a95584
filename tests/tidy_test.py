#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a program can check; the first broken one of a kind is never excused. Under pytest a case for
each source; as a program it lists what is broken, and needs Python alone.

  - a folder under src/loci includes only from floors below it, tests included; a room of the engine only from those
    before it, and from testing/ in tests alone
  - a folder of serve/ includes only from folders whose libraries its own names in CMake, and a library has sources of
    one folder alone; there are no cycles
  - a file has at most 600 lines, a function 70, a kernel (compute/*/*.inl, *.cu) 150
  - no text and no comment below cli names a flag: what is configured has a name of its own there
  - what tests, fuzz targets and benchmarks share, and the product does not use, is named x_testing.h (and .cc) beside x;
    sim/ has worlds and loads by nature, and is left out
  - a test has its files in a TestFolder, whose name no other process's test has, and which goes with the test
  - the name of a test, fuzz target or benchmark begins with a word with which sources of its folder begin, or with the
    folder's; but in sim/
  - headers begin with a comment that says what they are for, and with #pragma once
  - no two headers of the product define types or constants of one name in a namespace: the linker keeps one of them
  - every source names its licence at its head (`tidy_test.py --fix` writes that line where it is missing)
  - NOTICE names every crate of Cargo.lock and every library that CMakeLists.txt finds; the version stands in CMakeLists.txt alone, and in CHANGELOG.md
  - a mutex of the product is base/mutex.h's, and its file says what it guards or what is called under it
  - a part of the tests that runs a suite where its ground has changed has all that the suite imports among that ground
  - no paths of one machine
"""
import argparse
import pathlib
import re
import subprocess
import sys

import planted_faults

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = ["base", "model", "compute", "memory", "policy", "engine", "serve", "cluster", "server", "sim", "cli"]
ROOMS = ["core", "log", "mover", "run", "testing"]  # of the engine
FILE_LINES, FUNCTION_LINES, KERNEL_LINES = 600, 70, 150
SOURCE = (".h", ".cc", ".inl", ".cu", ".cuh", ".rs", ".py", ".sh", ".js", ".mjs")
SCRIPT = (".py", ".sh", ".cmake")
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z]")
# Programs of their own, which have flags, and what starts other programs.
HAS_FLAGS = re.compile(r"_(main|test|benchmark|fuzz)\.cc$|^src/loci/(cli|compute/cuda/check)/|/postgres_testing\.cc$")
# What is bound to has to outlive the line.
DANGLING = re.compile(r"\b(auto|std::string)&&? \w+ =[^;]*\bstatus\(\)\.(message|field)\(\)")
PLAIN_MUTEX = re.compile(r"std::(\w*mutex|condition_variable\w*|lock_guard|unique_lock|scoped_lock|shared_lock)\b")
MUTEX_FIELD = re.compile(r"^ *(?:mutable )?(?:Shared)?Mutex (\w+)(?:\{.*\})?;", re.M)
TEST_PROGRAM = re.compile(r"_(test|benchmark|fuzz)\.cc$")
FOR_TESTS = re.compile(r"_(test|fuzz|benchmark|testing)\.(h|cc|cu)$|_corpus\.cc$|/random_model_main\.cc$|^(tests|bench)/")
TEST = re.compile(r"_(test|fuzz|benchmark)\.(cc|cu)$")
NO_SUPPORT_NAME = re.compile(r"^(test|fake|mock|stub)_|_(fake|mock|stub|exercise|test_\w+)\.\w+$|_test\.(h|inl)$")
OWN_FOLDER = re.compile(r"\b(TempDir|temp_directory_path)\(\)")
DEFINED_ONCE = re.compile(r"^(?:(?:struct|class) (\w+)(?: final)?(?: :[^;{]*)? \{|inline (?:constexpr|const) [\w:<>, *&]+? (k[A-Z]\w*)\b(?!\())", re.M)
LIVE_PART = re.compile(r"^(\w+)\(\) \{.*\blive tests/(\w+)\.py", re.M)
LOCAL_IMPORT = re.compile(r"^(?:from|import) (\w+)", re.M)
MACHINE_PATH = re.compile(r"(?<![\w./-])/(work|farm|root)/")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
                         capture_output=True, check=True).stdout
    return [ROOT / name for name in out.splitlines() if (ROOT / name).is_file()]


def is_source(path):
    return path.suffix in (*SOURCE, ".cmake", ".mjs") or path.name in ("Makefile", "CMakeLists.txt", "run")


def licensed(path, text):
    """The text with the licence's line: the first one, or the second behind `#!`."""
    mark = "#" if path.suffix in SCRIPT or path.name in ("Makefile", "CMakeLists.txt", "run") else "//"
    line = f"{mark} {LICENCE}\n"
    first, rest = ("", text)
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        first += "\n"
    return text if rest.startswith(line) else first + line + rest


def without_licence(text):
    """What follows the licence's line."""
    first, _, rest = text.partition("\n")
    return rest if first.endswith(LICENCE) else text


def without_comments(text):
    """Comments, strings and character literals are blanked; lines stay where they are."""
    pattern = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def flags(text):
    """Numbers of the lines whose texts or comments name a flag."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return sorted({text.count("\n", 0, m.start() + flag.start()) + 1
                   for m in pattern.finditer(text) for flag in FLAG.finditer(m.group(0))})


def functions(text):
    """(first line, lines) of each function body that stands in a namespace or a class."""
    text = without_comments(text)
    stack, head, found = [], 0, []
    for at, char in enumerate(text):
        if char in ";}":
            if char == "}" and stack:
                kind, line = stack.pop()
                if kind == "function":
                    found.append((line, text.count("\n", 0, at) + 2 - line))
            head = at + 1
        elif char == "{":
            line = text.count("\n", 0, at) + 1
            words = text[head:at]
            if any(kind == "function" for kind, _ in stack):
                kind = "block"
            elif re.search(r"\bnamespace\b|\bextern\b", words):
                kind = "namespace"
            elif re.search(r"\b(class|struct|enum|union)\b(?![^{]*\))", words):
                kind = "class"
            elif ")" in words:
                kind = "function"
            else:
                kind = "block"
            stack.append((kind, line))
            head = at + 1
    return found


def check(path, problems):
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(errors="replace")
    lines = text.count("\n") + 1
    if lines > FILE_LINES:
        problems.append(f"{name}: {lines} lines, at most {FILE_LINES}: split it")
    if name != "tests/tidy_test.py":
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                problems.append(f"{name}:{number}: a path of one machine")
    if licensed(path, text) != text:
        problems.append(f"{name}: begin with a comment \"{LICENCE}\": tests/tidy_test.py --fix writes it")
    if path.suffix not in (".h", ".cc", ".inl", ".cu", ".cuh"):
        return
    if name.startswith("src/loci/") and not HAS_FLAGS.search(name):
        for number in flags(text):
            problems.append(f"{name}:{number}: names a flag, which only cli has")
    if name.startswith("src/loci/") and name != "src/loci/base/mutex.h" and not TEST_PROGRAM.search(name):
        check_mutexes(name, without_comments(text), problems)
    for found in DANGLING.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        problems.append(f"{name}:{number}: a reference into what status() returns, a copy that is gone at the line's end")
    limit = KERNEL_LINES if re.match(r"src/loci/compute/.*\.(inl|cu|cuh)$", name) else FUNCTION_LINES
    for line, length in functions(text):
        if length > limit:
            problems.append(f"{name}:{line}: a function of {length} lines, at most {limit}")
    if path.suffix == ".h":
        if not without_licence(text).startswith("//") or "#pragma once" not in text:
            problems.append(f"{name}: begin with a comment that says what it is for, then #pragma once")
    check_includes(path, name, text, problems)


def check_mutexes(name, text, problems):
    """What the compiler can check of mutexes: they are its own, and something is said of each."""
    for found in PLAIN_MUTEX.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        problems.append(f"{name}:{number}: {found.group(0)}: use what base/mutex.h has, which the compiler checks")
    for found in MUTEX_FIELD.finditer(text):
        mutex, number = found.group(1), text.count("\n", 0, found.start(1)) + 1
        if not re.search(rf"(GUARDED_BY|REQUIRES)\([^)]*\b{mutex}\)", text):
            problems.append(f"{name}:{number}: {mutex} guards nothing: annotate what it does (GUARDED_BY)")


def check_includes(path, name, text, problems):
    match = re.match(r"src/loci/(\w+)/(?:(\w+)/)?", name)
    if not match:
        return
    floor, room = FLOORS.index(match.group(1)), match.group(2)
    for number, line in enumerate(text.splitlines(), 1):
        included = re.match(r'\s*#include "loci/(\w+)/(\w+)', line)
        if not included:
            continue
        if FLOORS.index(included.group(1)) > floor:
            problems.append(f"{name}:{number}: includes from a higher floor ({included.group(1)})")
        elif included.group(1) == "engine":
            other = included.group(2)
            if other not in ROOMS:
                problems.append(f"{name}:{number}: {other} is none of the engine's rooms: {', '.join(ROOMS)}")
            elif other == "testing" and room != "testing" and not re.search("_test$|_benchmark$", path.stem):
                problems.append(f"{name}:{number}: includes what is for tests alone")
            elif match.group(1) == "engine" and other != "testing" and ROOMS.index(other) > (ROOMS.index(room) if room in ROOMS else -1):
                problems.append(f"{name}:{number}: includes from a later room ({other})")


def serve_targets(cmake_files):
    """{folder: {"library": {...}, "test": {...}}} of CMakeLists.txt by folder: the libraries that the folder's own
    libraries, and its tests, depend on; and which folder a library is of."""
    depends, home, foreign = {}, {}, []
    for folder, text in cmake_files.items():
        depends[folder] = {"library": set(), "test": set()}
        for kind, name, arguments in re.findall(r"^ *loci_(library|test|fuzzer|benchmark)\((\w+)([^)]*)\)", text, re.M):
            sources, _, needs = arguments.partition("DEPENDS")
            if kind == "library":
                home[f"loci_{name}"] = folder
            for source in re.findall(r"(\S+)/\w+\.cc", sources):
                if source != "${CMAKE_CURRENT_BINARY_DIR}":
                    foreign.append((folder, name, source))
            tested = kind != "library" or name.endswith("_testing")
            depends[folder]["test" if tested else "library"] |= set(needs.split())
    seen = {folder: {kind: {home[name] for name in names if home.get(name, folder) != folder} for kind, names in of.items()}
            for folder, of in depends.items()}
    return seen, foreign


def cycle(edges):
    """A way from a folder back to itself, or nothing."""
    done = set()

    def walk(folder, way):
        if folder in way:
            return way[way.index(folder):] + [folder]
        if folder in done:
            return None
        for other in sorted(edges.get(folder, ())):
            if found := walk(other, way + [folder]):
                return found
        done.add(folder)
        return None

    return next((found for folder in sorted(edges) if (found := walk(folder, []))), None)


def check_serve(problems):
    """The walls between the folders of serve/."""
    serve = ROOT / "src/loci/serve"
    files = {path.parent.relative_to(serve).as_posix(): re.sub(r"#.*", "", path.read_text())
             for path in serve.glob("*/**/CMakeLists.txt")}
    seen, foreign = serve_targets(files)
    for folder, name, source in foreign:
        problems.append(f"src/loci/serve/{folder}/CMakeLists.txt: {name} has sources of another folder ({source})")
    if way := cycle({folder: of["library"] | of["test"] for folder, of in seen.items()}):
        problems.append(f"src/loci/serve: folders depend on each other: {' -> '.join(way)}")

    def below(folder):
        return seen[folder]["library"].union(*(below(other) for other in seen[folder]["library"]))

    for path in sorted(serve.rglob("*")):
        folder = path.parent.relative_to(serve).as_posix()
        if path.suffix not in (".h", ".cc"):
            continue
        name = path.relative_to(ROOT).as_posix()
        if folder not in seen:
            problems.append(f"{name}: {folder} has no CMakeLists.txt")
            continue
        tested = re.search("_(test|testing|fuzz|benchmark)$", path.stem)
        may = seen[folder]["library"] | {folder}
        if tested and not way:
            may |= below(folder).union(seen[folder]["test"], *(below(other) for other in seen[folder]["test"]))
        for included in re.findall(r'#include "loci/serve/([\w/]+)/\w+\.h"', path.read_text()):
            if included not in may:
                problems.append(f"{name}: includes from {included}, whose library {folder}'s does not depend on")


def check_support(texts, problems):
    """What tests share has one naming scheme, and the product includes none of it. `texts`: C++ sources by name."""
    users = {}
    for name, text in texts.items():
        for included in re.findall(r'^ *#include "(loci/[^"]+)"', text, re.M):
            users.setdefault(f"src/{included}", set()).add(name)
            if included.endswith("_testing.h") and not FOR_TESTS.search(name):
                problems.append(f"{name}: includes {included}, which is for tests alone")
    for name in sorted(texts):
        if re.search(r"_(test|testing|fuzz)\.(h|cc)$", name) and name != "src/loci/base/folder_testing.h" and OWN_FOLDER.search(texts[name]):
            problems.append(f"{name}: names its own temporary files: base/folder_testing.h has a folder for each test")
        stem, file = re.sub(r"\.\w+$", "", name), name.rpartition("/")[2]
        if not name.startswith("src/loci/") or name.startswith("src/loci/sim/"):
            continue
        others = {user for user in users.get(name, ()) if re.sub(r"\.\w+$", "", user) != stem}
        for_tests = name.endswith(".h") and others and all(FOR_TESTS.search(user) for user in others)
        misplaced = name.startswith("src/loci/engine/testing/") or NO_SUPPORT_NAME.search(file) or for_tests
        if misplaced and not re.search(r"_testing\.(h|cc)$", file):
            problems.append(f"{name}: tests alone use it: call it after what it is of, X_testing{name[name.rindex('.'):]}")


def check_test_names(names, problems):
    """What a test is of can be told from its name. `names`: of all C++ sources."""
    firsts = {}  # by folder: first words of its sources' names, of its own and of those of folders in it
    for name in names:
        folder, _, file = name.rpartition("/")
        if not FOR_TESTS.search(name):
            firsts.setdefault(folder, set()).add(re.split(r"[_.]", file)[0])
    for folder in list(firsts):
        outer, _, own = folder.rpartition("/")
        firsts[folder] |= {own.split("_")[0], own.rstrip("s")}
        firsts.setdefault(outer, set()).add(own.split("_")[0])
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        if not TEST.search(file) or not name.startswith("src/loci/") or name.startswith("src/loci/sim/"):
            continue
        if file.split("_")[0] not in firsts.get(folder, ()):
            problems.append(f"{name}: begins as no source of its folder does, nor as the folder: say in its name what it is of")


# What CMake looks for and no program contains; what every program links without being looked for.
NO_LIBRARY, OF_THE_COMPILER = {"threads", "pkgconfig"}, {"glibc", "stdc++", "gcc"}


def libraries_found(text):
    """What CMake's text finds for the product, which stands outside of any if(): names without "lib", in lower case."""
    found = re.findall(r"^find_package\(([\w-]+)", text, re.M)
    for modules in re.findall(r"^pkg_check_modules\(\w+ REQUIRED IMPORTED_TARGET ([^)]+)\)", text, re.M):
        found += [re.split("[<>=]", module)[0] for module in modules.split()]
    return {plain_name(name) for name in found} - NO_LIBRARY


def libraries_named(notice):
    """Those that NOTICE says come from the system: the lines of its parts "Of the system, ..."."""
    lines = [line for part in re.findall(r"^Of the system, .*\n\n((?:  .+\n)+)", notice, re.M) for line in part.splitlines()]
    names = [re.split(", | and ", re.sub(r" *\(.*?\)", "", line.split(": ")[0])) for line in lines]
    return {plain_name(name.strip()) for line in names for name in line} - OF_THE_COMPILER


def plain_name(name):
    return name.lower().replace("_", "-").removeprefix("lib")


def check_notice(problems):
    """Every library that CMake finds and every crate that Cargo.lock names has its line, and no other has one."""
    found, named = libraries_found((ROOT / "CMakeLists.txt").read_text()), libraries_named((ROOT / "NOTICE").read_text())
    for library in sorted(found ^ named):
        problems.append(f"NOTICE: {library} is " + ("not named" if library in found else "not found by CMakeLists.txt"))
    lock = (ROOT / "deps/loci_text/Cargo.lock").read_text()
    crates = set(re.findall(r'name = "(.+)"\nversion = "(.+)"', lock)) - {("loci_text", "0.0.0")}
    named = set(re.findall(r"^  ([\w-]+) (\d+\.\d+\.\d[\w.+-]*): ", (ROOT / "NOTICE").read_text(), re.M))
    for crate, version in sorted(crates ^ named):
        problems.append(f"NOTICE: {crate} {version} is " + ("not named" if (crate, version) in crates else "not in Cargo.lock"))


def check_defined_once(texts, problems):
    """`texts`: of files, by name."""
    places = {}
    for name, text in texts.items():
        if pathlib.Path(name).suffix not in (".h", ".cuh") or FOR_TESTS.search(name) or "/testing/" in name or "/scripted/" in name:
            continue
        namespace = "::".join(re.findall(r"^namespace ([\w:]+) \{", text, re.M))
        for found in DEFINED_ONCE.finditer(text):
            places.setdefault(f"{namespace}::{found[1] or found[2]}", set()).add(name)
    for defined, names in sorted(places.items()):
        if len(names) > 1:
            problems.append(f"{min(names)}: defines {defined}, as {', '.join(sorted(names)[1:])} does")


def check_version(sources, problems):
    """The project's version is written once; what prints it has it from CMake."""
    version = re.search(r"^project\(loci VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
    written = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.]*\d)")
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        if name != "CMakeLists.txt" and written.search(path.read_text(errors="replace")):
            problems.append(f"{name}: writes the version {version}: take it from CMake's PROJECT_VERSION")
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text():
        problems.append(f"CHANGELOG.md: has no section for version {version}")


def imported(suite):
    """The modules of tests/ that the suite needs, itself and theirs among them."""
    found, left = set(), [suite]
    while left:
        module = left.pop()
        path = ROOT / "tests" / f"{module}.py"
        if module in found or not path.exists():
            continue
        found.add(module)
        left += LOCAL_IMPORT.findall(path.read_text())
    return found


def check_grounds(script, problems):
    """`script`: the text of scripts/test.sh."""
    variables = dict(re.findall(r'^  local (\w+)="([^"]*)"$', script, re.M))
    for part, suite in LIVE_PART.findall(script):
        for ground in re.findall(rf'^ +grounded \d+ "[^"]*" "([^"]*)" {part}$', script, re.M):
            for name, value in variables.items():
                ground = ground.replace(f"${name}", value)
            problems += [f"scripts/test.sh: {part} does not run when tests/{module}.py changes"
                         for module in sorted(imported(suite)) if f"tests/{module}.py" not in ground.split()]


def test_the_checks_see_what_they_are_for():
    text = "namespace a {\nclass B {\n int f(int x) {\n  if (x) {\n  }\n  return 1;\n }\n};\nvoid g() {\n}\n}\n"
    assert functions(text) == [(3, 5), (9, 2)], functions(text)
    assert MACHINE_PATH.search('"/' + 'work/x"') and not MACHINE_PATH.search("bench/" + "work/x")
    assert DANGLING.search("  const std::string& a = b.status().message();\n") and DANGLING.search("auto& a =\n    b->status().field();\n")
    assert not DANGLING.search("const std::string a = b.status().message();\nconst Status& s = b.status();\nf(s.message());\n")
    assert flags('a = --left; // --disk\nf("--ab");\n/* x--y */ g("a --b");\n') == [1, 2]
    once = licensed(pathlib.Path("a.sh"), "#!/bin/sh\ntrue\n")
    assert once == f"#!/bin/sh\n# {LICENCE}\ntrue\n" == licensed(pathlib.Path("a.sh"), once), once
    assert without_licence(licensed(pathlib.Path("a.h"), "// What.\n")) == "// What.\n"
    problems = []
    check_mutexes("a.h", "class A {\n  std::mutex m;\n  mutable Mutex mutex_;\n  Mutex b_{X};\n  int c GUARDED_BY(b_);\n};\n", problems)
    assert [p.split(":")[1] for p in problems] == ["2", "3"], problems
    assert functions('void f() { // }\n "}";\n}\n') == [(1, 3)]


def test_support_of_tests_is_seen():
    problems = []
    check_support({"src/loci/base/a.h": "", "src/loci/base/a.cc": '#include "loci/base/a.h"\n', "src/loci/base/b.h": "",
                   "src/loci/base/a_test.cc": '#include "loci/base/a.h"\n#include "loci/base/b.h"\n',
                   "src/loci/base/b.cc": '#include "loci/base/b.h"\n#include "loci/base/c_testing.h"\n',
                   "src/loci/base/d.cc": '#include "loci/base/b.h"\n', "src/loci/base/fake_d.cc": "",
                   "src/loci/sim/d_load.h": "", "src/loci/base/e_testing.h": "", "src/loci/engine/testing/e.h": "",
                   "src/loci/sim/f_test.cc": "f(testing::TempDir());", "src/loci/base/folder_testing.h": "temp_directory_path()"}, problems)
    assert [p.split(":")[0].rpartition("/")[2] for p in problems] == ["b.cc", "a.h", "fake_d.cc", "e.h", "f_test.cc"], problems


def test_names_of_tests_are_seen():
    problems = []
    names = ["product_tiles.h", "b/c.h", "x_testing.h", "product_test.cc", "product_tiles_fuzz.cc", "a_times_benchmark.cc", "b_test.cc",
             "prod_test.cc", "tiles_test.cc", "x_test.cc"]
    check_test_names([f"src/loci/a/{name}" for name in names] + ["src/loci/sim/x.h", "src/loci/sim/y_test.cc"], problems)
    assert [p.split(":")[0].rpartition("/")[2] for p in problems] == ["prod_test.cc", "tiles_test.cc", "x_test.cc"], problems


def test_libraries_are_seen():
    cmake = ("find_package(Threads REQUIRED)\nfind_package(OpenSSL 3.0 REQUIRED)\nif(LOCI_TESTS)\n  find_package(GTest REQUIRED)\nendif()\n"
             "pkg_check_modules(pqxx REQUIRED IMPORTED_TARGET libpqxx>=6.4 libpq)\nfind_package(nlohmann_json REQUIRED)\n")
    notice = ("Of the system, linked (which link others)\n\n  libpq and libpqxx (a, b): X; Y\n  OpenSSL (TLS): Z\n  glibc: L\n\n"
              "Of the system, compiled in\n\n  nlohmann-json: MIT\n\nOf Rust\n\n  a 1.0.0: MIT\n")
    assert libraries_found(cmake) == libraries_named(notice) == {"openssl", "pqxx", "pq", "nlohmann-json"}, libraries_named(notice)


def test_walls_are_seen():
    library = "loci_library(%s SOURCES a.cc%s DEPENDS loci_base%s)\n"
    seen, foreign = serve_targets({"x": library % ("x", "", " loci_y"), "y": library % ("y", " ../z/b.cc", ""),
                                   "z": library % ("z", "", "") + "loci_test(z_test SOURCES t.cc DEPENDS loci_z loci_x)"})
    assert seen["x"] == {"library": {"y"}, "test": set()} and seen["z"] == {"library": set(), "test": {"x"}}, seen
    assert foreign == [("y", "y", "../z")], foreign
    assert cycle({"x": {"y"}, "y": {"z"}, "z": set()}) is None
    assert cycle({"x": {"y"}, "y": {"z"}, "z": {"y"}}) == ["y", "z", "y"]


def fix(sources):
    """Writes the licence's line into every source that lacks it."""
    count = 0
    for path in sources:
        text = path.read_text()
        if (fixed := licensed(path, text)) != text:
            path.write_text(fixed)
            count += 1
    print(f"{count} of {len(sources)} sources had no line of the licence, and have it now")


def pytest_generate_tests(metafunc):
    """test_source, of every source."""
    if "source" in metafunc.fixturenames:
        sources = [path for path in tracked() if is_source(path)]
        metafunc.parametrize("source", sources, ids=[path.relative_to(ROOT).as_posix() for path in sources])


def test_source(source):
    problems = []
    check(source, problems)
    assert not problems, "\n".join(problems)


def test_serve_has_walls():
    problems = []
    check_serve(problems)
    assert not problems, "\n".join(problems)


def cpp_texts():
    names = {path.relative_to(ROOT).as_posix(): path for path in tracked() if path.suffix in (".h", ".cc", ".inl", ".cu", ".cuh")}
    return {name: path.read_text(errors="replace") for name, path in names.items()}


def test_headers_define_names_once():
    twice = {"a.h": "namespace loci {\ninline constexpr Range kMost{.low = 0};\n}\n",
             "b.h": "namespace loci {\ninline constexpr float kMost = 1;\nstruct A {\n};\n}\n",
             "c.h": "namespace loci::cuda {\nstruct A {\n};\n}\n"}
    problems = []
    check_defined_once(twice, problems)
    assert problems == ["a.h: defines loci::kMost, as b.h does"]
    problems.clear()
    check_defined_once(cpp_texts(), problems)
    assert not problems, "\n".join(problems)


def test_what_tests_share_is_named_so():
    problems = []
    check_support(cpp_texts(), problems)
    assert not problems, "\n".join(problems)


def test_tests_are_named_after_what_they_are_of():
    problems = []
    check_test_names(cpp_texts(), problems)
    assert not problems, "\n".join(problems)


def test_notice_names_the_crates():
    problems = []
    check_notice(problems)
    assert not problems, "\n".join(problems)


def test_the_version_stands_once():
    problems = []
    check_version([path for path in tracked() if is_source(path)], problems)
    assert not problems, "\n".join(problems)


def test_grounds_have_what_their_suites_import():
    script = (ROOT / "scripts" / "test.sh").read_text()
    problems = []
    check_grounds(script.replace(" tests/bad_link.py", ""), problems)
    assert problems == ["scripts/test.sh: cluster_faults does not run when tests/bad_link.py changes"]
    problems.clear()
    check_grounds(script, problems)
    assert not problems, "\n".join(problems)


def test_planted_faults_have_their_places():
    for faults in planted_faults.FAULTS.values():
        for path, old, _ in faults:
            assert old in (ROOT / path).read_text(encoding="utf-8"), f"{path}: {old!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="write the licence's line into sources that lack it")
    arguments = parser.parse_args()
    test_the_checks_see_what_they_are_for()
    test_walls_are_seen()
    test_libraries_are_seen()
    test_support_of_tests_is_seen()
    test_names_of_tests_are_seen()
    sources = [path for path in tracked() if is_source(path)]
    if arguments.fix:
        fix(sources)
    problems = []
    for path in sources:
        check(path, problems)
    check_serve(problems)
    check_support(cpp_texts(), problems)
    check_defined_once(cpp_texts(), problems)
    check_test_names(cpp_texts(), problems)
    check_notice(problems)
    check_version(sources, problems)
    check_grounds((ROOT / "scripts" / "test.sh").read_text(), problems)
    for problem in problems:
        print(problem)
    failed = len({p.split(":")[0] for p in problems})
    print(f"tidy: {len(sources) - failed} passed, {failed} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
