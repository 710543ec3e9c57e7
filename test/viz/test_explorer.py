"""The explorer: every stage of what a program computed, as a page."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from threading import Thread
from xml.etree import ElementTree

import pytest
from devices import why_absent

from tinygrad import Tensor
from tinygrad.engine.structure import structure_of
from tinygrad.uop.rewrite import listeners
from tinygrad.viz.drawing import MOST_NODES, svg
from tinygrad.viz.explorer import Explorer, explore, serve
from tinygrad.viz.formula import difference

SVG = "{http://www.w3.org/2000/svg}"


def explorer(*tensors):
    made = Explorer()
    for t in tensors:
        made.add(structure_of([t.uop]).sink)
    return made


def titles(answer):
    return [stage["title"] for stage in answer["stages"]]


def two_kernels(device="CPU"):
    a = Tensor([[1.0, 2.0, 3.0]] * 4, device).realize()
    return (a @ a.T).softmax().contiguous() + 1


def boxes(root):
    picture = ElementTree.fromstring(svg(root))
    return ["".join(box.itertext()) for box in picture.iter(f"{SVG}g")]


# ---- what there is to see ------------------------------------------------------------------------


def test_graphs_are_listed_with_the_line_that_made_them():
    (graph,) = explorer(two_kernels()).answer("graphs")["graphs"]
    assert graph["results"] == "(4, 4)"
    assert re.search(r"test_explorer\.py:\d+$", graph["place"])


def test_a_graph_has_its_stages_and_kernels():
    answer = explorer(two_kernels()).answer("graph/0")
    assert titles(answer) == ["Graph", "Scheduling's rewrites", "Plan"]
    assert len(answer["kernels"]) == 3
    assert "3 steps" in answer["stages"][2]["text"]


@pytest.mark.parametrize("device", ["CPU", "CLANG", "CL", "PYTHON", "NULL"])
def test_a_kernel_has_all_stages_down_to_what_runs(device):
    if reason := why_absent(device):
        pytest.skip(f"{device}: {reason}")
    answer = explorer(two_kernels(device)).answer("graph/0/kernel/1")
    found = titles(answer)
    assert found[:5] == [
        "Kernel", "Recipe", "Kernel with its recipe", "Lowering's rewrites", "Loops",
    ]  # fmt: skip
    assert found[-2:] == ["Source", "Machine code"]
    assert answer["name"] == explorer(two_kernels(device)).answer("graph/0")["kernels"][1]


def test_a_bundle_names_its_members_and_the_kernels_that_it_joins():
    a, b = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 2.0, 3.0]).realize()
    made = Explorer()
    made.add(structure_of([(a * 2).uop, (b * 2).uop]).sink)
    bundle, joined = made.answer("graph/0")["kernels"]
    assert bundle.startswith("b2_E") and joined.startswith("E")
    stages = made.answer("graph/0/kernel/0")["stages"]
    assert [s["title"] for s in stages[:2]] == ["Bundle", "Loops"]
    assert len(stages[0]["text"].splitlines()) == 2


def test_a_recipe_is_shown_step_by_step():
    recipe = explorer(two_kernels()).answer("graph/0/kernel/0")["stages"][1]
    first, *steps = recipe["steps"]
    assert first["title"] == "the loops as they came"
    assert [s["title"] for s in steps] == recipe["text"].splitlines()
    assert all(a["after"] == b["before"] for a, b in zip(steps, steps[1:], strict=False))


def test_rewrites_have_rule_before_and_after():
    stage = explorer((Tensor([1.0, 2.0]) / 4).exp2()).answer("graph/0/kernel/0")["stages"][3]
    (step,) = [s for s in stage["steps"] if s["title"] == "function"]
    assert step["before"].startswith("EXP2(")
    assert "EXP2" not in step["after"]
    assert not listeners, "nobody listens when nobody looks"


@pytest.mark.parametrize("path", ["graph/1", "graph/0/kernel/9", "graph/x", "nothing", ""])
def test_what_is_not_there_has_no_answer(path):
    assert explorer(two_kernels()).answer(path) is None


def test_graphs_with_other_steps_than_kernels():
    order = Tensor([3.0, 1.0, 2.0]).realize().argsort()
    assert explorer(order).everything()["graph/0"]["stages"][2]["text"]


# ---- pictures and formulas -----------------------------------------------------------------------


def test_constants_are_words_in_their_users():
    drawn = boxes((Tensor([1.0, 2.0]).realize() * 3).uop)
    assert len(drawn) == 2
    assert drawn[1].split()[-4:] == ["MUL", "3.0", "float", "(2,)"]


def test_what_is_drawn_is_limited():
    t = Tensor([1.0]).realize()
    for i in range(2 * MOST_NODES):
        t = t + i
    assert len(boxes(t.uop)) == MOST_NODES


def test_the_same_parts_have_letters():
    x = Tensor([1.0, 2.0]).realize().uop.exp2()
    assert difference(x + x, x * 2) == ("a + a", "a * 2.0", "a = EXP2: float (2,)")


def test_a_node_that_goes_into_what_it_becomes():
    x = Tensor([1.0, 2.0]).realize().uop
    before, after, _ = difference(x.exp2(), x.exp2() + x)
    assert (before, after) == ("EXP2(a)", "EXP2(a) + a")


def test_deep_graphs_are_cut_off():
    node = first = Tensor([1.0]).realize().uop
    for _ in range(2000):
        node = node.exp2()
    assert ".." in difference(first, node)[1]


# ---- pages ---------------------------------------------------------------------------------------


def test_a_page_stands_alone(tmp_path):
    page = explore(two_kernels(), path=tmp_path / "page.html").read_text()
    (data,) = re.findall(r"^const DATA = (.*);$", page, re.M)
    assert {"graphs", "graph/0", "graph/0/kernel/0"} <= set(json.loads(data))
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", page.split("<script>")[0])


def fetched(server, path):
    host, port = server.server_address[:2]
    with urllib.request.urlopen(f"http://{host}:{port}/{path}", timeout=30) as answer:
        return answer.read().decode()


def test_a_server_answers_this_machine():
    with serve(explorer(two_kernels()), 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert fetched(server, "").startswith("<!doctype html>")
        assert json.loads(fetched(server, "graphs"))["graphs"][0]["results"] == "(4, 4)"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(server, "graph/7")
        server.shutdown()


def test_another_port_where_one_is_taken():
    with serve(Explorer(), 0) as first, serve(Explorer(), first.server_address[1]) as second:
        assert first.server_address[1] != second.server_address[1]


def test_viz_serves_what_a_program_computed_until_it_is_interrupted():
    code = "from tinygrad import Tensor\nprint((Tensor([1.0, 2.0]) + 1).tolist())"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "VIZ": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = child.stderr.readline()
        (address,) = re.findall(r"VIZ: 1 graph at (http://127.0.0.1:\d+/) until Ctrl-C", line)
        with urllib.request.urlopen(address + "graph/0", timeout=30) as answer:
            assert "kernels" in json.load(answer)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == "[2.0, 3.0]\n"
    assert child.returncode == 0
