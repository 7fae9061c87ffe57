"""The rules themselves, tried on files that break them and on files that do not."""

import dataclasses
import pathlib

from lint import clocks, floors, layers, names, prose, python, text, tidy
from lint.rules import RULES, Check
from lint.tree import Tree


@dataclasses.dataclass(frozen=True)
class Bite:
    """Two sets of files, {name: text}: a rule must refuse the one and accept the other."""

    check: Check
    refused: dict[str, str]
    accepted: dict[str, str]


def includes(name: str, *headers: str) -> dict[str, str]:
    """A file that includes some headers, and nothing else."""
    return {name: "".join(f'#include "{header}"\n' for header in headers)}


def walls(name: str, refused: str, accepted: str) -> Bite:
    """A file that may not include one header and may include another."""
    return Bite(layers.check_walls, includes(name, refused), includes(name, accepted))


def lines(count: int) -> str:
    """A text of so many lines."""
    return "int x;\n" * count


def cpp_function(length: int) -> str:
    """A function of so many lines."""
    return "namespace n {\nvoid MakeThing() {\n" + "  static_cast<void>(0);\n" * (length - 2) + "}\n}\n"


def python_function(length: int) -> str:
    """The same in Python."""
    return "def f():\n" + "    g()\n" * (length - 1)


def methods(class_name: str, *bodies: str) -> str:
    """A class with some methods."""
    return f"namespace n {{\nclass {class_name} {{\n public:\n" + "\n".join(bodies) + "\n};\n}\n"


WALL_BITES = (
    walls("base/x.cc", "devices/types.h", "base/log.h"),
    walls("csi-spec/x.cc", "devices/types.h", "csi/v1/csi.pb.h"),
    walls("devices/array/x.cc", "node/node_service.h", "devices/types.h"),
    walls("devices/array/x.cc", "devices/array/tgt/pool.h", "devices/array/array.h"),
    walls("devices/array/remote/x.cc", "devices/array/tgt/pool.h", "devices/array/array.h"),
    walls("devices/array/tgt/x.cc", "devices/libiscsi/testing/session.h", "devices/heartbeat/block.h"),
    walls("devices/iscsi/x.cc", "devices/datapath/worker.h", "devices/types.h"),
    walls("devices/datapath/x.cc", "devices/libiscsi/testing/session.h", "devices/iscsi/lun.h"),
    walls("devices/heartbeat/x.cc", "devices/iscsi/block_session.h", "devices/node_id.h"),
    walls("devices/libiscsi/x_test.cc", "devices/iscsi/lun.h", "devices/libiscsi/testing/session.h"),
    walls("fencing/core/x.cc", "base/log.h", "devices/types.h"),
    walls("fencing/protocol/x.cc", "fencing/kube/json.h", "fencing/core/event.h"),
    walls("fencing/protocol/x.cc", "devices/array/array.h", "devices/grant.h"),
    walls("fencing/agent/x.cc", "fencing/failover/loop.h", "node/grant_source.h"),
    walls("fencing/agent/x.cc", "devices/iscsi/lun.h", "devices/iscsi/block_session.h"),
    walls("fencing/coordinator/x.cc", "fencing/agent/path_watch.h", "fencing/kube/json.h"),
    walls("fencing/failover/x.cc", "fencing/coordinator/authenticator.h", "fencing/kube/json.h"),
    walls("fencing/sim/x.cc", "fencing/agent/replicas.h", "fencing/agent/heartbeat_sender.h"),
    walls("fencing/scale/x.cc", "plugin/options.h", "fencing/failover/testing/fake_api.h"),
    walls("identity/x.cc", "controller/request.h", "csi/v1/csi.pb.h"),
    walls("controller/x.h", "devices/array/tgt/pool.h", "devices/array/array.h"),
    walls("node/x.cc", "controller/request.h", "devices/datapath/initiator.h"),
    walls("node/x.cc", "devices/array/testing/fake_array.h", "devices/array/array.h"),
    walls("node/x_test.cc", "devices/datapath/worker.h", "devices/array/testing/fake_array.h"),
    walls("node/x_test.cc", "devices/array/tgt/testing/fixture.h", "devices/array/testing/fake_array.h"),
    walls("plugin/x.cc", "plugin/testing/rig.h", "devices/array/tgt/pool.h"),
)
BEHIND_AGENT = {**includes("fencing/agent/x.cc", "node/y.h"), **includes("node/y.h", "fencing/kube/json.h")}
BEHIND_COORDINATOR = {
    **includes("fencing/coordinator/x.cc", "base/y.h"),
    **includes("base/y.h", "fencing/agent/z.h"),
}
BEHIND_SIMULATOR = {
    **includes("fencing/sim/x.cc", "fencing/protocol/y.h"),
    **includes("fencing/protocol/y.h", "fencing/protocol/coordinator.grpc.pb.h"),
}
BEHIND_NODE = {**includes("node/x.cc", "base/y.h"), **includes("base/y.h", "devices/array/tgt/pool.h")}
ODD_SPELLINGS = ("#include <{}>", "# include \"{}\"", "#include \"./{}\"", "#include \"base/../{}\"")
BESIDE = {"fencing/agent/x.cc": '#include "../kube/json.h"\n', "fencing/kube/json.h": ""}
LAYER_BITES = (
    Bite(layers.check_walls, includes("base/deep/x.cc"), includes("base/x.cc")),
    Bite(layers.check_walls, BESIDE, {**BESIDE, "fencing/agent/x.cc": '#include "y.h"\n#include <y.h>\n'}),
    *(
        Bite(
            layers.check_walls,
            {"node/x.cc": spelling.format("plugin/y.h")},
            {"node/x.cc": spelling.format("base/y.h")},
        )
        for spelling in ODD_SPELLINGS
    ),
    Bite(layers.check_nevers, BEHIND_AGENT, includes("fencing/agent/x.cc", "node/y.h")),
    Bite(
        layers.check_nevers, BEHIND_COORDINATOR, includes("fencing/coordinator/x.cc", "fencing/kube/json.h")
    ),
    Bite(layers.check_nevers, BEHIND_SIMULATOR, includes("fencing/sim/x.cc", "fencing/protocol/y.h")),
    Bite(layers.check_nevers, BEHIND_NODE, includes("plugin/x.cc", "devices/array/tgt/pool.h")),
    Bite(layers.check_nevers, includes("node/x.cc", "plugin/y.h"), includes("plugin/x.cc", "plugin/y.h")),
    Bite(
        layers.check_purity,
        {"fencing/core/x.cc": "#include <chrono>\n"},
        {"fencing/core/x.cc": "#include <map>\n", "fencing/sim/x.cc": "#include <chrono>\n"},
    ),
    Bite(
        layers.check_purity,
        {**includes("fencing/core/x.cc", "base/check.h"), "base/check.h": "#include <thread>\n"},
        {**includes("fencing/core/x.cc", "base/check.h"), "base/check.h": "#include <string>\n"},
    ),
    Bite(
        layers.check_purity,
        {"fencing/core/x.h": '#include "absl/time/clock.h"\n'},
        {"fencing/core/x_test.cc": "#include <fstream>\n"},
    ),
)
WAITS = (
    "mu_.AwaitWithTimeout(a, b);",
    "if (!mu_.AwaitWithDeadline(a, b)) return;",
    "mu_.LockWhenWithTimeout(a, b);",
    "mu_->ReaderLockWhenWithDeadline(a, b);",
    "changed_.WaitWithTimeout(&mu_, b);",
    "while (!gate.changed.WaitWithDeadline(&mu_, b)) {",
    "return ended_.WaitForNotificationWithTimeout(b);",
    "ended_.WaitForNotificationWithDeadline(b);",
    "changed_.wait_until(a, b);",
    "std::this_thread::sleep_until(b);",
    "while (absl::Now() < deadline) {",
    "if (absl::Now() + kPause >= io.deadline) return;",
    "if (deadline <= absl::Now()) return;",
)
CLOCK_BITES = tuple(
    Bite(
        clocks.check_steady_waits,
        {"node/x.cc": f"  {wait}\n"},
        {
            "node/x.cc": f"  SteadyDeadline end(absl::Now() + kTime);  // not {wait}\n",
            "base/steady_x.h": f"  {wait}\n",
            "node/x_test.cc": f"  {wait}\n",
        },
    )
    for wait in WAITS
)
FLOOR_BITES = (
    Bite(floors.check_floors, includes("devices/x.h", "node/y.h"), includes("node/x.h", "devices/y.h")),
    Bite(floors.check_floors, includes("controller/x.h", "node/y.h"), includes("plugin/x.h", "node/y.h")),
    Bite(
        floors.check_floors,
        includes("base/x_test.cc", "node/y.h"),
        includes("base/x_test.cc", "node/testing/y.h"),
    ),
    Bite(floors.check_floors, includes("base/deep/x.h"), includes("base/x.h")),
    Bite(
        floors.check_pairs,
        {
            **includes("fencing/agent/x.h", "fencing/protocol/y.h"),
            **includes("fencing/protocol/z.h", "fencing/agent/x.h"),
        },
        {
            **includes("fencing/agent/x.h", "fencing/protocol/y.h"),
            **includes("fencing/core/z.h", "fencing/core/y.h"),
        },
    ),
    Bite(
        floors.check_pairs,
        {**includes("fencing/agent/x.h", "node/y.h"), **includes("node/z.h", "fencing/core/y.h")},
        includes("fencing/agent/x.h", "node/y.h"),
    ),
    Bite(
        floors.check_headers,
        {"node/x.cc": ""},
        {"node/x.cc": "", "node/x.h": "", "node/y_test.cc": "", "node/main.cc": "int main() {}\n"},
    ),
    Bite(floors.check_headers, {"node/x.cc": "", "base/x.h": ""}, {"base/testing/x.cc": ""}),
    Bite(floors.check_support_is_apart, {"node/fake_x.h": ""}, {"node/testing/fake_x.h": ""}),
)
TEXT_BITES = (
    Bite(text.check_lengths, {"node/x.cc": lines(401)}, {"node/x.cc": lines(400)}),
    Bite(text.check_lengths, {"node/x.h": lines(151)}, {"node/x.h": lines(150)}),
    Bite(text.check_lengths, {"x.py": lines(401)}, {"x.py": lines(400)}),
    Bite(text.check_lengths, {"x.sh": lines(401)}, {"x.sh": lines(400)}),
    Bite(text.check_lengths, {"dev": lines(401)}, {"dev": lines(400)}),
    Bite(text.check_lengths, {"node/x.h": "// " + "x" * 108}, {"node/x.h": "// " + "x" * 107}),
    Bite(text.check_python_functions, {"x.py": python_function(51)}, {"x.py": python_function(50)}),
    Bite(
        text.check_comments,
        {"node/x.cc": lines(93) + "  // why\n" * 7},
        {"node/x.cc": lines(92) + "  // why\n" * 8},
    ),
    Bite(
        text.check_introductions,
        {"node/x.cc": '#include "x.h"\n// One.\n' + lines(150)},
        {
            "node/x.cc": "// Two\n// lines.\n" + lines(150),
            "node/y.cc": '#include "x.h"\n\n// Two\n// lines.\n' + lines(150),
        },
    ),
    Bite(
        text.check_comment_lists,
        {"x.h": f"// - {'x ' * 45}\n// cut\n//   off\n"},
        {"x.h": f"// - {'x ' * 45}\n//   not cut\n//   off\n// so:\n//   this\n"},
    ),
    Bite(
        text.check_broken_declarations,
        {"x.h": "  std::optional<int>\n      x_;  // why\n"},
        {"x.h": "  // why\n  std::optional<int> x_;\n  case A:\n    break;  // z\n  x =\n      y;  // z\n"},
    ),
    Bite(
        text.check_unused_names, {"x.cc": "using std::swap;\n"}, {"x.cc": "using std::swap;\nswap(a, b);\n"}
    ),
    Bite(text.check_format, {"x.cc": "int  x ;\n"}, {"x.cc": "int x;\n"}),
)
PYTHON_BITES = (
    Bite(
        python.check_python_columns,
        {"e2e/bench/x.py": "#" * (python.COLUMNS + 1)},
        {"e2e/bench/x.py": "#" * python.COLUMNS},
    ),
    Bite(
        python.check_types,
        {"e2e/harness/x.py": "def f(x):\n    return x\n"},
        {"e2e/harness/x.py": "def f(x: int) -> int:\n    return x\n"},
    ),
)
WIDE = "x" * (prose.COLUMNS + 1)
PROSE_BITES = (
    Bite(
        prose.check_columns,
        {"x.md": WIDE},
        {"x.md": f"| {WIDE} |\n```\n{WIDE}\n```\n[x](https://example.org/{WIDE})\n"},
    ),
    Bite(
        prose.check_sections,
        {"x.md": "# A\n" + "word\n" * 251},
        {"x.md": "# A\n" + "word\n" * 250 + "## B\n| word |\n" + "word\n" * 250},
    ),
    Bite(
        prose.check_phrases,
        {"x.md": "It is put\nright.\n"},
        {"x.md": "```\nput right\n```\nIt is `put right`.\n"},
    ),
    Bite(
        prose.check_phrases,
        {"x.md": "It takes the old mark away."},
        {"x.md": "It takes a while. Go away."},
    ),
    Bite(prose.check_links, {"docs/x.md": "[x](y.md)"}, {"docs/x.md": "[x](y.md)", "docs/y.md": ""}),
    Bite(prose.check_links, {"x.md": "# A b\n[x](#b)"}, {"x.md": "# A `b`: c\n[x](#a-b-c)\n[y](https://z)"}),
    Bite(prose.check_links, {"x.md": "`node/y.cc`"}, {"x.md": "`node/y.cc`", "node/y.cc": ""}),
    Bite(prose.check_phrases, {"node/x.cc": "int x;  // Whoever asks.\n"}, {"node/x.cc": 'f("whoever");\n'}),
    Bite(prose.check_phrases, {"x.py": "x = 1  # whoever\n"}, {"x.py": "x = 'whoever'  # or not\n"}),
    Bite(prose.check_phrases, {"x.py": '"""Whoever asks."""\n'}, {"x.py": '"""Anyone."""\nx = "whoever"\n'}),
)
INTERFACE = methods("Sink", "  virtual void Take() = 0;")
SINKS = {f"node/{name}.h": methods(f"{name} : public Sink", "  void Take() override {}") for name in "ABC"}
STORES = {f"node/{name}.h": methods(name, "  void Take() {}") for name in "ABC"}
RPCS = {
    f"node/{name}.h": methods(f"{name} : public v1::X::Service", "  void Probe() override {}")
    for name in "ABC"
}
POOLS = {f"node/{name}.h": methods(name, "  void Open() {}") for name in "ABC"}
OPENERS = {f"node/{name}.cc": "namespace {\nvoid Open() {}\n}\n" for name in "abc"}
RUNS_PRODUCT = "".join(f'#include "{header}"\n' for header in names.RUNS)
NAME_BITES = (
    Bite(
        names.check_class_names,
        {"node/x.h": "namespace a {\nclass X {};\n}\n", "base/x.cc": "namespace {\nenum X {};\n}\n"},
        {
            "node/x.h": "class X { class Y {}; };\nclass Z { class Y {}; };\n",
            "fencing/sim/x.h": "class X {};\n",
            "base/x.h": "class X;\n",
        },
    ),
    Bite(
        names.check_class_names,
        {"node/x_test.cc": "class X {};\n", "base/testing/x.h": "class X {};\n"},
        {"node/x_test.cc": "void f() {\n  struct X {};\n}\n", "base/x_test.cc": "struct X {};\n"},
    ),
    Bite(
        names.check_simulator,
        {"fencing/failover/x.h": "class X {};\n", "fencing/sim/x.h": f"{RUNS_PRODUCT}class X {{}};\n"},
        {"fencing/failover/x.h": "class X {};\n", "fencing/sim/x.h": f"{RUNS_PRODUCT}class Y {{}};\n"},
    ),
    Bite(
        names.check_simulator,
        {"fencing/agent/path_watch.h": "class X {};\n", "fencing/sim/x.h": f"{RUNS_PRODUCT}class X {{}};\n"},
        {"fencing/agent/replicas.h": "class X {};\n", "fencing/sim/x.h": f"{RUNS_PRODUCT}class X {{}};\n"},
    ),
    *(
        Bite(
            names.check_simulator,
            includes("fencing/sim/x.cc", *(other for other in names.RUNS if other != header)),
            includes("fencing/sim/x.cc", *names.RUNS),
        )
        for header in names.RUNS
    ),
    Bite(
        names.check_one_word_share,
        {"node/x.cc": "void Look() {}\nvoid TakeIt() {}\n"},
        {"node/x.cc": "void Look() {}\nvoid TakeIt() {}\nvoid ToIQN() {}\nX::X() {}\nint size() {}\n"},
    ),
    Bite(names.check_overused_names, STORES, {"node/sink.h": INTERFACE, **SINKS}),
    Bite(names.check_overused_names, OPENERS, POOLS),
    Bite(names.check_overused_names, STORES, RPCS),
    Bite(names.check_overused_names, STORES, {name: STORES[name] for name in ("node/A.h", "node/B.h")}),
    Bite(
        names.check_retired_words,
        {"node/x.cc": "void JudgeNodes() {}\n"},
        {"node/x.cc": "void ClassifyNodes() {}\nvoid FindByHandle() {}\n"},
    ),
    Bite(
        names.check_retired_words,
        {"node/x_test.cc": "bool told_to_stop = false;\n"},
        {"node/x_test.cc": 'Stop("told_to_stop");  // told_to_stop\nlunkeeper::x();\n'},
    ),
    Bite(
        names.check_cpp_functions,
        {"node/x_test.cc": 'TEST_CASE("x") {\n' + lines(49) + "}\n"},
        {"node/x_test.cc": 'TEST_CASE("x") {\n' + lines(48) + "}\n"},
    ),
    Bite(names.check_cpp_functions, {"node/x.cc": cpp_function(51)}, {"node/x.cc": cpp_function(50)}),
)


def tidy_problems() -> list[str]:
    """Whether clang-tidy, as .clang-tidy sets it, holds the length of functions."""
    if not pathlib.Path(".clang-tidy").exists():
        return ["there is no .clang-tidy in this folder"]
    refused, accepted = (tidy.run_tidy(cpp_function(length), ()) for length in (53, 50))
    return ["clang-tidy accepts a function of 53 lines"] * (refused is None) + (accepted or [])


def bite_problems(bite: Bite) -> list[str]:
    """Whether a rule refuses and accepts as it should."""
    what = bite.check.__name__
    with Tree.of(bite.refused) as tree:
        problems = [] if bite.check(tree) else [f"{what} accepts {bite.refused}"[:200]]
    with Tree.of(bite.accepted) as tree:
        return problems + [f"{what} refuses what is right: {problem}" for problem in bite.check(tree)]


def check_rules_bite(_: Tree) -> list[str]:
    """Each rule refuses what breaks it, and nothing else."""
    bites = (
        *WALL_BITES,
        *LAYER_BITES,
        *CLOCK_BITES,
        *FLOOR_BITES,
        *TEXT_BITES,
        *PYTHON_BITES,
        *PROSE_BITES,
        *NAME_BITES,
    )
    untried = {rule.__name__ for rule in RULES} - {bite.check.__name__ for bite in bites}
    return (
        [f"{rule}: nothing tries it" for rule in sorted(untried)]
        + tidy_problems()
        + [problem for bite in bites for problem in bite_problems(bite)]
    )
