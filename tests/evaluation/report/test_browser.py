"""The report works in a real browser: it sorts, toggles, tells values, fits a phone, and logs no error."""

import browser
import pytest
from made_up import classes, context, numbers, tiny

from posteriax.evaluation import Comparison
from posteriax.evaluation.report.page import write_page
from posteriax.metrics import Estimate

pytestmark = pytest.mark.skipif(browser.find() is None, reason="no Chromium: apt-get install chromium")

TEXTS = "[...document.querySelectorAll('[data-set=\"0\"] tbody th')].map(cell => cell.innerText.split(/\\s/)[0])"


@pytest.fixture(scope="module")
def chromium():
    opened = browser.Browser(browser.find())
    yield opened
    opened.close()


@pytest.fixture
def show(chromium, tmp_path):
    """Open a comparison's report; at the end, there must have been no error and no request."""

    def opened(comparison, width=1200, told=None):
        chromium.errors.clear()
        chromium.requests.clear()
        chromium.resize(width)
        write_page(comparison, tmp_path / "report.html", context=told)
        chromium.open(tmp_path / "report.html")
        return chromium

    yield opened
    assert chromium.errors == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:"))] == []


def header(column):
    return f'[data-set="0"] th:nth-child({column}) button'


def test_a_click_on_a_heading_sorts_the_table(show):
    page = show(classes(kinds=()))
    before = page.run(TEXTS)
    assert before[0] == "MAP"
    page.click(header(3))  # nll, lower is better
    assert page.run(TEXTS) == before[::-1]
    sorts = "[...document.querySelectorAll('[data-set=\"0\"] th[aria-sort]')].map(h => h.getAttribute('aria-sort'))"
    assert page.run(sorts)[:4] == ["none", "none", "ascending", "none"]
    page.click(header(3))
    assert page.run(TEXTS) == before
    assert page.run(sorts)[2] == "descending"
    page.click(header(6))  # agreement, higher is better
    assert page.run(TEXTS)[0] == "HMC"
    assert page.run(sorts)[2] == "none"


def test_headings_sort_by_keyboard(show):
    page = show(classes(kinds=()))
    page.run(f"document.querySelector('{header(3)}').focus()")
    page.press("Enter", "\r")
    assert page.run(TEXTS)[0] == "HMC"


def test_what_is_missing_is_sorted_last_both_ways(show):
    rows = {"a": {"nll": Estimate(float("nan"))}, "b": {"nll": Estimate(10.0)}, "c": {"nll": Estimate(9.0)}}
    page = show(Comparison({"test": rows}))
    page.click(header(2))
    assert page.run(TEXTS) == ["c", "b", "a"]
    page.click(header(2))
    assert page.run(TEXTS) == ["b", "c", "a"]


def test_switching_a_posterior_off_removes_it_from_all_charts(show):
    page = show(classes())
    drawn = {
        card: f"document.querySelectorAll('#{card} svg .m1').length"
        for card in ("reliability", "errors", "severity", "attack", "distance", "uncertainty")
    }
    assert all(page.run(count) > 0 for count in drawn.values())
    page.click("#legend label:nth-of-type(2)")
    assert [page.run(count) for count in drawn.values()] == [0] * 6
    assert page.run("document.querySelectorAll('#reliability svg .m0').length") > 0
    page.click("#legend label:nth-of-type(2)")
    assert all(page.run(count) > 0 for count in drawn.values())
    for method in range(6):
        page.click(f"#legend label:nth-of-type({method + 1})")
    assert page.run("document.querySelectorAll('.chart .line').length") == 0


def test_another_test_set_another_score_another_kind(show):
    page = show(classes())
    assert page.run("[...document.querySelectorAll('#tables > div')].filter(d => !d.hidden).length") == 1
    choose = "(s, i) => { s.value = i; s.dispatchEvent(new Event('change')); }"
    page.run(f"({choose})(document.getElementById('set'), 2)")
    assert page.run("document.querySelector('#tables > div:not([hidden]) caption').textContent") == "fog 2"
    line = "document.querySelector('#severity .line').getAttribute('d')"
    seen = [page.run(line)]
    for place, option in ((0, 1), (1, 2)):
        page.run(f"({choose})(document.querySelectorAll('#severity select')[{place}], {option})")
        seen.append(page.run(line))
    assert len(set(seen)) == 3


def test_values_are_told_at_the_pointer_and_by_arrow_keys(show):
    page = show(classes())
    tooltip = "document.getElementById('tooltip').hidden ? '' : document.getElementById('tooltip').innerText"
    page.hover("#distance .point.m0")
    assert page.run(tooltip) == "MAP: 0.13 ± 0.002"
    page.run("document.querySelector('#severity svg').focus()")
    page.press("ArrowRight")
    assert page.run(tooltip) == "MAP, severity 0: 0.9 ± 0.008"
    page.press("ArrowRight")
    assert page.run(tooltip).startswith("MAP, severity 1:")


def test_a_click_anywhere_in_a_heading_sorts(show):
    page = show(classes(kinds=()))
    page.run("document.querySelector('[data-set=\"0\"] th:nth-child(3)').click()")
    assert page.run(TEXTS)[0] == "HMC"


def test_ten_posteriors_have_ten_markers_and_ten_colours(show):
    page = show(classes(methods=10, kinds=()))
    signs = "[...document.querySelectorAll('#legend label path')]"
    assert page.run(f"new Set({signs}.map(path => path.getAttribute('d'))).size") == 10
    assert page.run(f"new Set({signs}.map(path => getComputedStyle(path).fill)).size") == 10


def test_of_many_posteriors_few_are_in_full_and_no_two_look_the_same(show):
    page = show(classes(methods=13, kinds=()))
    signs = "[...document.querySelectorAll('#legend label path')]"
    looks = f"new Set({signs}.map(path => path.getAttribute('d') + getComputedStyle(path).fill)).size"
    assert page.run(looks) == 13
    in_full = "document.querySelectorAll('#reliability svg .line:not(.faint)').length"
    before = page.run(in_full)
    assert 1 <= before <= 4
    assert page.run("document.querySelectorAll('#reliability svg .line.faint').length") == 13 - before
    box = page.run("[...document.querySelectorAll('#legend input')].findIndex(box => box.indeterminate)") + 1
    page.click(f"#legend label:nth-of-type({box})")
    assert page.run(in_full) == before + 1
    page.click(f"#legend label:nth-of-type({box})")
    assert page.run("document.querySelectorAll('#reliability svg .line').length") == 12
    cards = "[...document.querySelectorAll('#charts > article:not([hidden], .wide)')]"
    rows = {}
    for top, height in page.run(f"{cards}.map(card => [card.offsetTop, card.offsetHeight])"):
        rows.setdefault(top, set()).add(height)
    assert all(len(alike) == 1 for alike in rows.values())


@pytest.mark.parametrize(("width", "cut"), [(700, True), (1600, False)])
def test_a_table_that_is_wider_than_the_page_says_so(show, width, cut):
    page = show(classes(kinds=()), width)
    assert page.run("document.querySelector('[data-set=\"0\"]').classList.contains('cut')") is cut
    assert page.run("document.getElementById('scroll-hint').hidden") is not cut


def test_one_posteriors_examples_are_shown_at_a_time_first_the_recommended(show):
    page = show(classes(kinds=()))
    visible = "[...document.querySelectorAll('#examples article')].filter(e => !e.hidden).map(e => e.dataset.method)"
    assert page.run(visible) == ["5"]  # HMC
    choose = "(s, i) => { s.value = i; s.dispatchEvent(new Event('change')); }"
    page.run(f"({choose})(document.querySelector('#example-choice select'), 1)")
    assert page.run(visible) == ["1"]
    matrices = "[...document.querySelectorAll('#confusions > div')].filter(e => !e.hidden).map(e => e.dataset.method)"
    assert page.run(matrices) == ["5"]


def test_effects_are_drawn_as_curves_with_bands_and_as_bars(show):
    page = show(numbers(), told=context())
    count = lambda kind: page.run(f"document.querySelectorAll('#effects svg .{kind}').length")  # noqa: E731
    assert (count("line"), count("band"), count("interval"), count("bar")) == (1, 1, 1, 2)
    page.run("document.querySelector('#effects svg').focus()")
    page.press("ArrowRight")
    told = page.run("document.getElementById('tooltip').innerText")
    assert told.splitlines() == ["age (years) = 10: 1", "90 % band of the mean: 0.9 to 1.1", "90 % interval: 0 to 2"]
    choose = "(s, i) => { s.value = i; s.dispatchEvent(new Event('change')); }"
    page.run(f"({choose})(document.querySelector('#effects select'), 1)")
    assert (count("line"), count("band")) == (1, 0)


def test_an_exploded_posterior_does_not_flatten_the_charts(show):
    comparison = classes(kinds=())
    comparison.sets["test"]["k-tied"]["total_variation"] = Estimate(4e3, 10.0)
    chart = comparison.charts["test"]["k-tied"]
    chart.deciles.observed[:] = 4e21
    page = show(comparison)
    spread = """(card, method) => {
        const xs = [...document.querySelectorAll(`#${card} .point.m${method}, #${card} .hollow.m${method}`)]
            .map(path => path.getBBox()).flatMap(box => [box.y, box.y + box.height]);
        return Math.max(...xs) - Math.min(...xs);
    }"""
    assert page.run(f"({spread})('errors', 0)") > 100  # of about 400 pixels
    left = "document.querySelector('#distance .m0.point').getBBox().x"
    assert page.run(left) > 100
    page.hover("#distance .hollow.m2")
    assert page.run("document.getElementById('tooltip').innerText") == "k-tied: 4000 ± 10"


def test_dark_is_followed_and_a_phone_fits(show, chromium):
    chromium.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        page = show(numbers(), 390, context())
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
        assert page.run("document.documentElement.scrollWidth") <= 390
    finally:
        chromium.send("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("make", [classes, numbers, tiny])
@pytest.mark.parametrize("width", [380, 1200])
def test_the_page_never_scrolls_sideways_and_no_chart_is_empty(show, make, width):
    page = show(make(), width, context() if make is numbers else None)
    assert page.run("document.documentElement.scrollWidth") <= width
    cards = "[...document.querySelectorAll('#charts > article:not([hidden])')]"
    assert page.run(f"{cards}.every(card => card.querySelector('.chart svg path'))")
    assert page.run(f"{cards}.length") == {classes: 6, numbers: 4, tiny: 0}[make]
    outside = """[...document.querySelectorAll('.chart svg')].flatMap(svg => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(text => {
            const own = text.getBoundingClientRect();
            return own.left < box.left - 1 || own.right > box.right + 1;
        }).map(text => text.textContent);
    })"""
    assert page.run(outside) == []


def test_light_and_dark_can_be_switched(show):
    page = show(tiny())
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.run(colour)
    page.click("#theme")
    assert page.run(colour) != before
    page.click("#theme")
    assert page.run(colour) == before


def test_a_posterior_named_like_a_script_is_only_a_name(show):
    name = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    rows = {name: {name: Estimate(0.1), "total_variation": Estimate(0.1, 0.01)}, "HMC": {name: Estimate(0.2)}}
    page = show(Comparison({name: rows, "b": rows}, "HMC"))
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.querySelector('#legend label span').textContent") == name
    page.hover("#distance .point.m0")
    assert name in page.run("document.getElementById('tooltip').textContent")
