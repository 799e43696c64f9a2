"""The report says what the comparison says, safely, in one file of modest size."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from made_up import classes, context, numbers, tiny

import posteriax as px
from posteriax._internal.plot_style import PALETTE
from posteriax.diagnostics.reference import ReferenceCheck
from posteriax.evaluation import Comparison
from posteriax.evaluation.chart_summaries import ChartSummary, Disagreement, Example
from posteriax.evaluation.report import chart_data, pictures
from posteriax.evaluation.report.html_text import fidelity, warning
from posteriax.evaluation.report.page import BACKGROUNDS, ON_PAGES, as_json, page
from posteriax.metrics import SCORES, Estimate

pytestmark = pytest.mark.quick

EVIL = "<!--<script </script ><script>alert(1)</script>&\"'</title>{{data}}"


class Parsed(HTMLParser):
    """What a page has: elements with attributes, and the texts of the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text_of(self, tag):
        return [text for name, text in self.texts if name == tag]


def embedded(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&") & set(found[1])  # none of them can end the script element, or hide its end
    return json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} in the page's data"))


@pytest.mark.parametrize("comparison", [classes(), numbers(), tiny()], ids=["classes", "numbers", "tiny"])
@pytest.mark.parametrize("told", [None, context()], ids=["alone", "with context"])
def test_the_page_loads_nothing(comparison, told):
    text = page(comparison, context=told)
    parsed = Parsed(text)
    assert text.startswith("<!doctype html>")
    for _, attributes in parsed.elements:
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith("data:")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    assert len(parsed.of("script")) == 2


def test_names_are_shown_as_text_and_never_become_code():
    x = np.array(["a", "b"])
    chart = ChartSummary(
        entropies=np.ones(3),
        surest=(Example(0, x, 0, 0, 0.9),),
        surest_wrong=(Example(1, x, 1, 0, 0.8),),
        confusion=np.array([[2, 1], [0, 3]]),
    )
    rows = {
        EVIL: {EVIL: Estimate(0.1, 0.01), "nll": Estimate(0.2, 0.01)},
        "b": {EVIL: Estimate(0.3), "nll": Estimate(0.3)},
    }
    comparison = Comparison(
        {EVIL: rows},
        EVIL,
        best={EVIL: {"nll": (EVIL, "b")}},
        charts={EVIL: {EVIL: chart}, f"out: {EVIL}": {EVIL: ChartSummary(entropies=np.ones(2))}},
        class_names=(EVIL, EVIL),
        baselines={"b": EVIL},
        runs={
            EVIL: px.evaluation.RunEnd("stopped at the budget", (EVIL,)),
            f"{EVIL}2": px.evaluation.RunEnd("failed", (EVIL,)),
        },
        disagreements=(Disagreement(1, x, 0.0, {EVIL: 1.0, "b": 0.0}, {EVIL: 0.9, "b": 0.8}),),
    )
    told = px.evaluation.ReportContext(
        target=EVIL,
        unit=EVIL,
        rows=px.evaluation.TableRows((EVIL,), [[EVIL]] * 2, lines=[1, 2], file=EVIL),
        effects=context(EVIL).effects,
        methods={EVIL: EVIL},
        done={EVIL: EVIL},
        files={EVIL: EVIL},
        command=EVIL,
        log=EVIL,
    )
    text = page(comparison, EVIL, told)
    parsed = Parsed(text)
    assert "<script>alert" not in text
    assert len(parsed.of("script")) == 2
    assert len(parsed.of("title")) == 1
    assert EVIL in "".join(parsed.text_of("h1"))
    assert EVIL in "".join(parsed.text_of("th"))
    assert EVIL in parsed.text_of("button")
    assert embedded(text)["methods"] == [EVIL, "b"]


def test_only_the_pages_own_script_may_run():
    text = page(tiny())
    policy = next(a["content"] for a in Parsed(text).of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'sha256-" in policy


def test_the_table_has_every_score_and_marks_the_best():
    comparison = classes()
    text = page(comparison)
    main = text[text.index('data-set="0"') : text.index('data-set="1"')]
    cells = dict(re.findall(r'<th scope="row">.*?</span>([^<]*)(?: <small.*?)?</th>(.*?)</tr>', main))
    assert list(cells) == list(comparison.rows)
    assert re.search(r'<td class="best"[^>]*><strong>0.32 ± 0.01</strong> ★', cells["HMC"])
    assert re.search(r'<td class="tie"[^>]*>0.36 ± 0.01 ≈', cells["SWAG"])
    assert "★" not in cells["mean-field"]
    assert "60,000" in cells["HMC"]
    assert text.count('data-set="') == len(comparison.sets)


def test_scores_with_a_target_are_sorted_by_how_far_off_they_are():
    rows = {"low": {"coverage_90": Estimate(0.7)}, "high": {"coverage_90": Estimate(0.95)}}
    values = [float(v) for v in re.findall(r'<td data-value="([^"]+)"', page(Comparison({"test": rows})))]
    np.testing.assert_allclose(values, [0.2, 0.05])


def test_what_is_not_finite_is_not_in_the_data():
    comparison = classes()
    comparison.charts["test"]["MAP"].entropies[:5] = np.nan
    comparison.charts["test"]["MAP"].right[0] = np.nan
    comparison.sets["test"]["MAP"]["total_variation"] = Estimate(np.inf, np.nan)
    data = embedded(page(comparison))
    assert data["reliability"][0]["lines"][0]["points"][0][1] is None
    assert data["distance"]["lines"][0]["points"] == [[None, None]]
    assert as_json([np.float64("nan"), float("-inf"), 2.0]) == "[null,null,2]"


def test_ten_posteriors_and_ten_thousand_examples_stay_far_below_two_megabytes():
    comparison = classes(methods=10, examples=10_000, kinds=[f"kind{i}" for i in range(19)], side=96)
    assert len(page(comparison).encode()) < 1_600_000


def test_large_noisy_colour_pictures_stay_in_their_budget():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (224, 224, 3)) for _ in range(120)]
    assert sum(map(len, pictures.picture_uris(images))) < 1.1 * pictures.BUDGET


def test_histograms_count_every_example():
    histograms = chart_data.uncertainties(classes(examples=400))
    for line in histograms.inside + histograms.outside[0].lines:
        np.testing.assert_allclose(np.sum(line.points), 1.0)
    chart = ChartSummary(entropies=np.r_[np.zeros(100), 1.0, 1.0])
    two = chart_data.uncertainties(Comparison({"test": {"a": {}}}, charts={"test": {"a": chart}}))
    assert two.inside[0].points[0] == (100 / 102,)
    assert two.inside[0].points[-1] == (2 / 102,)


def test_severity_curves_start_at_the_clean_set():
    comparison = classes(kinds=("fog", "jpeg"))
    mean, fog, jpeg = chart_data.severity(comparison, "nll")
    assert (fog.name, jpeg.name) == ("fog", "jpeg")
    assert [point[0] for point in fog.lines[0].points] == [0, 1, 2, 3, 4, 5]
    assert fog.lines[0].points[0][1] == comparison.rows["MAP"]["nll"].value
    expected = np.mean([comparison.sets[f"{kind} 4"]["MAP"]["nll"].value for kind in ("fog", "jpeg")])
    assert mean.lines[0].points[4][1] == pytest.approx(expected)


def test_the_head_names_the_recommended_its_equals_and_the_distances():
    text = page(classes())
    head = text[: text.index("<main>")]
    assert "<strong>Use HMC</strong>: its negative log likelihood" in head
    assert "deep ensemble and SWAG are not significantly worse" in head
    assert "MAP, mean-field and k-tied are significantly worse" in head
    assert "The closest is deep ensemble (5.0&nbsp;%), the farthest MAP (13.0&nbsp;%)" in head
    assert "is the only row" in page(tiny())


def test_baselines_are_not_ranked_by_their_distance_to_the_reference():
    assert "MAP" not in fidelity(replace(classes(), baselines={"MAP": "A baseline."}))


def test_a_reference_that_failed_is_the_first_thing_to_read():
    runs = {"HMC": px.evaluation.RunEnd("stopped at the budget", ("400 effective draws would take about 20 minutes.",))}
    comparison = replace(classes(), reference_check=ReferenceCheck("HMC", 1.62), runs=runs)
    text = page(comparison)
    assert warning(comparison).startswith("Best available reference (not converged): HMC")
    assert text.index("Best available reference (not converged)") < text.index("<strong>Use ")
    assert "400 effective draws would take about 20 minutes." in text[: text.index("<main>")]
    assert '<li class="failed"' in text
    assert "best available reference, not converged" in text[text.index("<main>") :]


def test_runs_are_told_at_the_top_and_failures_are_listed_but_not_scored():
    runs = {
        "MAP": px.evaluation.RunEnd("converged"),
        "swag": px.evaluation.RunEnd("failed", ("Infinite at step 40.",), 3.0),
    }
    text = page(replace(classes(), runs=runs))
    head, rest = text.split("<main>")
    assert "✓ <b>MAP</b> converged" in head
    assert "✕ <b>swag</b> failed, not scored" in head
    assert "failed, not scored: swag" in rest
    assert rest.count("Infinite at step 40.") == 1  # in the details, folded away


def test_the_file_for_new_rows_is_that_of_the_recommended_posterior():
    files = {name: f"run/{name}.posterior" for name in classes().rows}
    text = page(classes(), context=px.evaluation.ReportContext(files=files))
    assert "posteriax predict run/HMC.posterior new.csv" in text
    baseline = replace(classes(), baselines={"HMC": "Not a posterior here."})
    assert "posteriax predict run/HMC.posterior new.csv" in page(
        baseline, context=px.evaluation.ReportContext(files=files)
    )
    files.pop("HMC")  # a baseline that was not saved
    text = page(baseline, context=px.evaluation.ReportContext(files=files))
    assert "To predict new rows (with deep ensemble)" in text
    assert "posteriax predict run/deep ensemble.posterior new.csv" in text


def test_examples_show_the_users_columns_cells_and_lines():
    text = page(numbers(), context=context())
    assert '<th scope="col">line</th>' in text
    assert '<th scope="col">weight (kg)</th>' in text
    assert "<td>row 2</td>" in text
    assert "<td>103</td>" in text  # the line of the test row 3
    assert ">x1<" not in text
    assert "and 2 more columns" in text


def test_columns_that_matter_come_first_in_examples():
    text = page(numbers(), context=context())
    headings = re.findall(r'<th scope="col">([^<]*)</th>', text[text.index("Largest errors") :])
    assert headings[3:5] == ["age (years)", "kind"]  # after line, predicted and actual: as in the effects


def test_methods_disagree_in_one_card():
    text = page(numbers(), context=context())
    card = text[text.index('id="disagreements"') :].partition("</article>")[0]
    assert card.count("<tr>") == 1 + len(numbers().disagreements)
    assert "<b>2.00</b> ±&nbsp;0.3" in card
    assert text.count("Where the methods disagree most") == 1


def test_a_class_that_is_never_predicted_is_visible():
    confusion = np.array([[683, 0], [117, 0]])
    charts = {"test": {"MAP": ChartSummary(entropies=np.ones(800), confusion=confusion, auroc=np.array([0.7, 0.7]))}}
    rows = {"MAP": {"accuracy": Estimate(0.85, 0.01), "nll": Estimate(0.4, 0.01)}}
    comparison = Comparison({"test": rows}, charts=charts, class_names=("survived", "died"))
    text = page(comparison)
    assert "MAP never predicts died, which 117 of the 800 test rows are." in text
    assert '<td class="never">0 of 117</td><td class="never">never predicted</td>' in text
    assert text.index('data-class="died"') < text.index('data-class="survived"')  # the rarest first


def test_what_was_done_and_how_to_do_it_again():
    text = page(numbers(), context=context())
    account = text[text.index('id="account"') :]
    assert "<dt>Rows</dt><dd>80 &amp; 20</dd>" in account
    assert "<code>posteriax compare trees.csv --target height</code>" in account
    assert "<details><summary>Log</summary><pre>map: 3 s\nhmc: 4 s</pre></details>" in account
    assert "An ordinary network." in account


def test_effects_are_in_the_data_with_the_names_of_columns_and_categories():
    found = embedded(page(numbers(), context=context()))["effects"]
    assert [column["name"] for column in found["columns"]] == ["age (years)", "kind"]
    assert found["columns"][1]["levels"] == ["elm", "oak"]
    assert found["outputs"] == ["height (m)"]
    assert found["method"] == 2  # the recommended one


def test_an_exploded_posterior_does_not_set_the_limits_of_histograms():
    charts = {
        name: ChartSummary(entropies=np.linspace(0, top, 50)) for name, top in zip("abc", (1, 2, 4e21), strict=True)
    }
    found = chart_data.uncertainties(Comparison({"test": {name: {} for name in "abc"}}, charts={"test": charts}))
    assert found.edges[-1] < 3
    assert found.inside[2].points[-1][0] > 0.9  # all in the last bin


def test_every_score_is_explained():
    for score in SCORES.values():
        assert re.fullmatch(r"[A-Z].*\.", score.meaning, re.DOTALL)
        assert score.better is not None


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((28, 28), (28, 28, 1)),
        ((28, 28, 1), (28, 28, 1)),
        ((3, 32, 40), (32, 40, 3)),
        ((32, 40, 3), (32, 40, 3)),
        ((64,), (8, 8, 1)),
        ((49,), None),
        ((65,), None),
        ((2, 2), None),
        ((5, 9, 9), None),
    ],
)
def test_what_is_a_picture(shape, image):
    found = pictures.as_image(np.zeros(shape))
    assert (None if found is None else found.shape) == image


@pytest.mark.parametrize("colours", [1, 3])
def test_pictures_are_real_png_files(colours, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, colours))
    uri = pictures.picture_uris([pixels])[0]
    (tmp_path / "a.png").write_bytes(base64.b64decode(uri.partition(",")[2]))
    with image.open(tmp_path / "a.png") as read:
        np.testing.assert_array_equal(np.asarray(read).reshape(pixels.shape), pixels)


def test_every_colour_is_readable_on_light_and_dark():
    for background, made in zip(BACKGROUNDS.values(), zip(*ON_PAGES, strict=True), strict=True):
        assert min(contrast(colour, background) for colour in made) >= 3
        assert len(set(made)) == len(made) == len(PALETTE)
        for colour, own in zip(PALETTE, made, strict=True):  # the figures' own, where that has enough contrast
            if (colour, background) == ("#000000", BACKGROUNDS["dark"]):
                continue  # a dark grey would look like a line that is drawn faintly
            assert own == colour.lower() or contrast(colour, background) < 3 < contrast(own, background) + 0.01 < 3.2


def contrast(one, other):
    """By WCAG 2.2: from 1 (the same) to 21 (black and white)."""
    rgb = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (one, other)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


def test_labels_have_their_names_and_features_a_table():
    text = page(classes())
    assert "<b>dress</b> &gt;&nbsp;99.9&nbsp;%<br>actually shirt" in text
    text = page(numbers())
    assert '<th scope="col">x8</th>' in text
    assert "and 3 more features" in text
