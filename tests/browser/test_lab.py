"""The lab in a real browser: mouse, touch, keyboard, address, reduced motion, both themes, phone, cost of a frame."""

import json
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "_build" / "html"

PAGE = "book/lab.html"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
FRAMES = 40
MANY = ";".join(f"{round(-0.98 + 0.05 * i, 2)},{round(((i * 7) % 11) / 4 - 1.2, 2)}" for i in range(40))


def opened(visit, fragment="", **options):
    """The lab with a fragment, its first drawing done."""
    tab = visit(PAGE + fragment, **options)
    tab.wait_for_selector("#lab .lab-point")
    return tab


def state(tab):
    return tab.evaluate("document.getElementById('lab').lab.state")


def settle(tab):
    """Wait until the address and the text alternatives have followed."""
    tab.wait_for_timeout(450)


def centre(tab, selector, index=0):
    box = tab.locator(selector).nth(index).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_scenes_open_and_are_in_the_address(visit):
    tab = opened(visit)
    assert tab.locator(".lab-scene").count() == 6
    first = tab.locator("article h1").bounding_box()
    scenes = tab.locator(".lab-scenes").bounding_box()
    assert scenes["y"] - first["y"] < 150, "the scenes are not the first thing on the page"
    for number in range(1, 7):
        tab.locator(".lab-scene").nth(number - 1).click()
        tab.wait_for_function("!document.getElementById('lab').lab.playing")
        settle(tab)
        assert tab.url.endswith(f"#scene={number}")
        assert tab.locator(".lab-scene[aria-pressed=true]").count() == 1
        assert len(tab.locator(".lab-sentence").inner_text()) > 60
    assert tab.faults == []


def test_mouse_drags_points_and_query(visit):
    tab = opened(visit, "#scene=2")
    x, y = centre(tab, ".lab-point .lab-dot", 2)
    before = state(tab)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 40, y - 60, steps=5)
    tab.mouse.up()
    after = state(tab)
    assert after["points"][2][0] > before["points"][2][0]
    assert after["points"][2][1] > before["points"][2][1]
    moved = centre(tab, ".lab-point .lab-dot", 2)
    assert abs(moved[0] - x - 40) < 4
    assert abs(moved[1] - y + 60) < 4
    x, y = centre(tab, ".lab-handle")
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x - 80, y, steps=5)
    tab.mouse.up()
    assert state(tab)["query"] < before["query"]
    settle(tab)
    assert "points=" in tab.url
    assert "query=" in tab.url
    assert tab.faults == []


def test_points_are_added_and_removed_by_mouse(visit):
    tab = opened(visit, "#scene=2")
    box = tab.locator(".lab-stage").bounding_box()
    tab.mouse.dblclick(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.2)
    assert len(state(tab)["points"]) == 8
    tab.get_by_role("button", name="Remove point").click()
    assert len(state(tab)["points"]) == 7
    for _ in range(8):
        button = tab.get_by_role("button", name="Remove point")
        if button.is_enabled():
            button.click()
    assert len(state(tab)["points"]) == 1
    assert button.is_disabled()
    tab.get_by_role("button", name="Add point").click()
    assert len(state(tab)["points"]) == 2
    before = state(tab)["points"]
    tab.get_by_role("button", name="Draw labels").click()
    assert state(tab)["points"] != before
    assert tab.faults == []


def test_touch_drags_and_double_tap_adds(visit):
    tab = opened(visit, "#scene=2", width=390, height=844, has_touch=True, is_mobile=True)
    tab.locator(".lab-stage").scroll_into_view_if_needed()
    touch = tab.context.new_cdp_session(tab)

    def send(kind, *points):
        touch.send(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]}
        )

    x, y = centre(tab, ".lab-point .lab-dot", 3)
    before, scrolled = state(tab)["points"], tab.evaluate("scrollY")
    send("touchStart", (x, y))
    for step in range(1, 9):
        send("touchMove", (x + 4 * step, y - 6 * step))
    send("touchEnd")
    after = state(tab)["points"]
    assert after[3][0] > before[3][0]
    assert after[3][1] > before[3][1]
    assert tab.evaluate("scrollY") == scrolled, "dragging a point scrolled the page"
    box = tab.locator(".lab-stage").bounding_box()
    for _ in range(2):
        tab.touchscreen.tap(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.2)
    tab.wait_for_function("document.getElementById('lab').lab.state.points.length === 8")
    assert tab.faults == []


def test_keyboard_moves_adds_removes_and_walks(visit):
    tab = opened(visit, "#scene=2")
    point = tab.locator(".lab-point").first
    point.focus()
    before = state(tab)
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowUp")
    after = state(tab)
    assert after["points"][0][0] == before["points"][0][0] + 1
    assert after["points"][0][1] == pytest.approx(before["points"][0][1] + 0.5)
    assert "Point 1" in tab.locator("#lab [role=status]").inner_text()
    tab.wait_for_timeout(50)
    assert "t −0.85" in point.get_attribute("aria-label")
    tab.keyboard.press("Delete")
    assert len(state(tab)["points"]) == 6
    assert tab.evaluate("document.activeElement.classList.contains('lab-point')")
    tab.keyboard.press("a")
    assert len(state(tab)["points"]) == 7
    assert tab.evaluate("[...document.querySelectorAll('.lab-point')].indexOf(document.activeElement)") == 6
    tab.keyboard.press("[")
    tab.keyboard.press("[")
    tab.keyboard.press("]")
    assert state(tab)["layer"] == 23
    tab.keyboard.press("p")
    tab.wait_for_function("document.getElementById('lab').lab.playing")
    tab.keyboard.press("p")
    tab.wait_for_function("!document.getElementById('lab').lab.playing")
    tab.locator(".lab-query").focus()
    tab.keyboard.press("ArrowLeft")
    assert state(tab)["query"] == before["query"] - 1
    tab.keyboard.press("Home")
    assert state(tab)["query"] == 0
    tab.wait_for_timeout(50)
    assert tab.locator(".lab-query").get_attribute("aria-valuenow") == "-1"
    assert tab.faults == []


def test_everything_can_be_reached_with_the_tab_key(visit):
    tab = opened(visit, "#scene=1")
    tab.locator(".lab-scene").first.focus()
    seen = set()
    for _ in range(40):
        seen.add(
            tab.evaluate(
                "((e) => e.getAttribute('class')?.split(' ')[0] || e.tagName.toLowerCase())(document.activeElement)"
            )
        )
        tab.keyboard.press("Tab")
    wanted = {"lab-scene", "lab-query", "lab-point", "lab-play", "lab-button", "input", "select", "summary"}
    assert wanted <= seen, sorted(wanted - seen)
    assert "lab-stage" not in seen


def test_controls_change_the_network(visit):
    tab = opened(visit, "#scene=2")
    tab.get_by_label("Label kernel").select_option("exponential")
    tab.get_by_label("Attention", exact=True).select_option("softmax")
    tab.get_by_label("Steps", exact=True).select_option("trained")
    chosen = state(tab)
    assert (chosen["label"], chosen["activation"], chosen["rule"]) == ("exponential", "softmax", "trained")
    assert chosen["depth"] == 8, "the table of trained steps has eight layers"
    tab.get_by_label("Steps", exact=True).select_option("constant")
    slider = tab.get_by_label("Step r")
    slider.wait_for(state="visible")  # shown with the next frame; before that it cannot have the focus
    slider.focus()
    tab.keyboard.press("ArrowRight")
    assert state(tab)["step"] > 0.4
    noise = tab.get_by_label("Noise variance")
    noise.focus()
    tab.keyboard.press("End")
    assert state(tab)["noise"] == 1
    tab.get_by_role("button", name="Pin this network").click()
    assert state(tab)["pin"]["activation"] == "softmax"
    tab.wait_for_selector(".lab-key-pin:visible")
    settle(tab)
    address = tab.url
    assert "pin=softmax:0.12,constant:" in address
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("#lab .lab-point")
    assert state(tab)["noise"] == 1
    assert state(tab)["pin"]["activation"] == "softmax"
    assert tab.faults == []


def test_address_is_read_and_followed(visit):
    tab = opened(visit, "#scene=3&depth=4&points=-0.5,1;0.25,-2&steps=constant:0.3")
    read = state(tab)
    assert read["points"] == [[50, 1], [125, -2]]
    assert (read["depth"], read["step"], read["scene"]) == (4, 0.3, 3)
    tab.locator("article a[href='#scene=3']").click()
    tab.wait_for_function("document.getElementById('lab').lab.state.depth === 24")
    assert tab.locator(".lab-scenes").is_visible()
    assert tab.evaluate("document.getElementById('lab').getBoundingClientRect().top") < 400
    tab.evaluate("location.hash = '#scene=2&points=nonsense&depth=99'")
    tab.wait_for_function("document.getElementById('lab').lab.state.scene === 2")
    assert state(tab)["depth"] == 32
    assert len(state(tab)["points"]) == 7
    assert tab.faults == []


def test_layers_play_and_motion_is_reduced_on_request(visit):
    tab = opened(visit, "#scene=1")
    tab.locator(".lab-scene").nth(5).click()
    tab.wait_for_function(
        "(() => { const c = document.getElementById('lab').lab.cursor; return c > 0 && c % 1 > 0; })()"
    )
    tab.wait_for_function("!document.getElementById('lab').lab.playing", timeout=15_000)
    assert state(tab)["layer"] == 6
    calm = opened(visit, "#scene=1", reduced_motion="reduce")
    calm.locator(".lab-scene").nth(5).click()
    calm.wait_for_timeout(100)
    assert not calm.evaluate("Boolean(document.getElementById('lab').lab.playing)")
    assert calm.evaluate("document.getElementById('lab').lab.cursor") == 6
    calm.locator(".lab-play").click()
    cursors = {
        calm.evaluate("document.getElementById('lab').lab.cursor")
        for _ in range(15)
        if calm.wait_for_timeout(150) is None
    }
    assert len(cursors) >= 2
    assert all(c == int(c) for c in cursors)
    assert tab.faults == calm.faults == []


@pytest.mark.parametrize(
    "fragment",
    [
        f"#scene=2&points={MANY}&depth=32&steps=constant:0.02",
        f"#scene=2&points={MANY}&depth=32&steps=optimal&noise=0.05",
    ],
)
def test_a_frame_with_40_points_and_32_layers_fits_60_a_second(fragment, visit):
    tab = opened(visit, fragment)
    assert len(state(tab)["points"]) == 40
    # Processor time of the page's thread, all tasks: it does not grow when other processes are busy.
    meter = tab.context.new_cdp_session(tab)
    meter.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent():
        metrics = meter.send("Performance.getMetrics")["metrics"]
        return 1000 * next(m["value"] for m in metrics if m["name"] == "TaskDuration")

    drag = """async (frames) => {
      const lab = document.getElementById("lab").lab;
      for (let i = 0; i < frames; i++) {
        lab.change({ points: lab.state.points.map((p, j) => j === 20 ? [60 + i % 80, Math.sin(i / 9)] : p) });
        await new Promise((next) => requestAnimationFrame(next));
      }
    }"""
    tab.evaluate(drag, 30)
    costs = []
    for _ in range(3):
        before = spent()
        tab.evaluate(drag, FRAMES)
        costs.append((spent() - before) / FRAMES)
    assert 0.5 < min(costs) < 1000 / 60, f"a frame costs {costs} ms"
    assert tab.faults == []


def test_at_most_one_drawing_per_frame(visit):
    tab = opened(visit, "#scene=2")
    drawn, frames = tab.evaluate(
        """async () => {
          const lab = document.getElementById("lab").lab, original = lab.show.bind(lab);
          let drawn = 0, frames = 0;
          lab.show = () => { drawn++; original(); };
          for (let f = 0; f < 10; f++) {
            for (let i = 0; i < 20; i++) lab.change({ query: (f * 20 + i) % 200 });
            await new Promise((next) => requestAnimationFrame(() => { frames++; next(); }));
          }
          return [drawn, frames];
        }"""
    )
    assert 0 < drawn <= frames + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("scene", [1, 4, 6])
def test_lab_is_accessible(scheme, scene, visit, axe_source):
    tab = opened(visit, f"#scene={scene}", scheme=scheme)
    for summary in tab.locator(".lab-details summary").all():
        summary.click()
    settle(tab)
    tab.add_script_tag(content=axe_source)
    found = tab.evaluate(f"axe.run('#lab', {{preload: false, runOnly: {json.dumps(TAGS)}}})")["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


def test_every_drawing_has_a_text_alternative_that_follows(visit):
    tab = opened(visit, "#scene=2")
    settle(tab)
    labels = (
        "[...document.querySelectorAll('.lab-panel [role=img]')].map((e) => e.getAttribute('aria-label'))"
    )
    before = tab.evaluate(labels)
    assert len(before) == 4
    assert all(len(text) > 40 for text in before)
    tab.locator(".lab-scene").nth(3).click()
    tab.wait_for_function("!document.getElementById('lab').lab.playing", timeout=15_000)
    settle(tab)
    after = tab.evaluate(labels)
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_numbers_and_code_follow_the_scene(visit):
    tab = opened(visit, "#scene=1")
    tab.locator(".lab-details summary").nth(0).click()
    tab.locator(".lab-details summary").nth(1).click()
    tab.wait_for_selector(".lab-table tbody tr")
    assert tab.locator(".lab-table tbody tr").count() == 3
    code = tab.locator(".lab-code").inner_text()
    assert "Transformer(2, len(steps)" in code
    tab.get_by_label("Depth k").focus()
    tab.keyboard.press("ArrowRight")
    settle(tab)
    assert tab.locator(".lab-table tbody tr").count() == 4
    assert tab.locator(".lab-code").inner_text() != code


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_horizontal_scroll(width, visit):
    tab = opened(visit, f"#scene=4&points={MANY}", width=width, height=844)
    for summary in tab.locator(".lab-details summary").all():
        summary.click()
    settle(tab)
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    inside = tab.evaluate(
        "[...document.querySelectorAll('#lab > *, .lab-panel > *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert inside == 0


def test_lab_follows_the_width_of_the_window(visit):
    tab = opened(visit, "#scene=2", width=1280)
    wide = tab.locator(".lab-stage").bounding_box()["width"]
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.wait_for_function("document.querySelector('.lab-stage').getBoundingClientRect().width < 390")
    assert wide > 700


def test_theme_switch_recolours_the_matrix(visit):
    tab = opened(visit, "#scene=2")
    pixel = """(() => { const c = document.querySelector('.lab-heat'), d = c.getContext('2d').getImageData(8, 8, 1, 1).data; return [...d]; })()"""
    before = tab.evaluate(pixel)
    tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    tab.wait_for_timeout(200)
    assert tab.evaluate(pixel) != before


def test_print_leaves_the_controls_out(visit):
    tab = opened(visit, "#scene=2")
    tab.emulate_media(media="print")
    assert tab.locator(".lab-controls").is_hidden()
    assert tab.locator(".lab-stage").is_visible()
    assert tab.locator(".lab-panel").first.is_visible()


def test_lab_is_loaded_on_its_own_page_only():
    with_lab = [
        p.name for p in (SITE / "book").glob("*.html") if "_static/lab/" in p.read_text(encoding="utf-8")
    ]
    assert with_lab == ["lab.html"]


def test_lab_runs_from_a_folder_without_a_server(browser):
    context = browser.new_context()
    tab = context.new_page()
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto((SITE / PAGE).as_uri() + "#scene=6")
    tab.wait_for_selector("#lab .lab-point", timeout=10_000)
    assert len(state(tab)["points"]) == 10
    assert errors == []
    context.close()


def test_without_a_browser_script_there_is_a_sentence(browser, base):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(base + PAGE)
    assert "JavaScript" in tab.locator("#lab").inner_text()
    context.close()
