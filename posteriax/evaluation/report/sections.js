
// What each section of the page shows: one chart after another, then boxes of which one is shown at a time.

if (data.reliability.length) {
  let set = 0;
  const controls = addChart("reliability", (box) => lineChart(box, {
    label: "Fraction right against confidence", square: true, ideal: [[0, 0], [1, 1]],
    corners: ["over-confident", "under-confident"],
    x: { label: "confidence", range: [0, 1.03] }, y: { label: "fraction right", range: [0, 1.03] },
    lines: shown(data.reliability[set].lines).map(({ method, points }) => {
      const total = points.reduce((sum, [, , count]) => sum + count, 0);
      return {
        method,
        points: points.map(([x, y, count]) => ({
          x, y, size: 2.5 + 7 * Math.sqrt(count / total), hollow: count < 10,
          text: `${nameOf(method)}: confidence ${short(x)}, right ${short(y)}\n${count} of ${total} examples`,
        })),
      };
    }),
  }));
  choice(data.reliability.map((group) => group.name), "Test set", controls, (i) => { set = i; draw(); });
}

if (data.coverage.length) {
  let set = 0;
  const controls = addChart("coverage", (box) => lineChart(box, {
    label: "Observed against nominal coverage", square: true, ideal: [[0, 0], [1, 1]],
    corners: ["over-confident", "under-confident"],
    x: { label: "nominal coverage", range: [0, 1.03] }, y: { label: "observed coverage", range: [0, 1.03] },
    lines: shown(data.coverage[set].lines).map(({ method, points }) => ({
      method,
      points: points.map(([x, y]) => (
        { x, y, text: `${nameOf(method)}: the ${Math.round(100 * x)} % interval covers ${(100 * y).toFixed(1)} %` })),
    })),
  }));
  choice(data.coverage.map((group) => group.name), "Test set", controls, (i) => { set = i; draw(); });
}

if (data.errors.length) {
  let set = 0;
  const unit = data.unit ? ` (${data.unit})` : "";
  const [expected, observed] = data.numbers
    ? [`predicted standard deviation${unit}`, `root mean squared error${unit}`]
    : ["predicted chance of being wrong", "share that is wrong"];
  byId("errors-note").textContent = "The error made against the error expected, by tenth of the test rows, from the "
    + "most to the least certain. On the line, the uncertainty is right; above it, over-confident. Who knows where it is "
    + "wrong follows the line; points above one another are equally certain, but not equally wrong.";
  const controls = addChart("errors", (box) => {
    const lines = shown(data.errors[set].lines);
    const high = robustRange(lines.map(({ points }) => points.flatMap(([x, y]) => [x, y])), 0.05)[1];
    return lineChart(box, {
      label: `${observed} against ${expected}`, square: true, ideal: [[0, 0], [high, high]],
      corners: ["under-confident", "over-confident"],
      x: { label: expected, range: [0, high] }, y: { label: observed, range: [0, high] },
      lines: lines.map(({ method, points }) => ({
        method,
        points: points.map(([x, y, count]) => (
          { x, y, text: `${nameOf(method)}: expected ${short(x)}, made ${short(y)}\n${count} examples` })),
      })),
    });
  });
  choice(data.errors.map((group) => group.name), "Test set", controls, (i) => { set = i; draw(); });
}

if (data.covered.length) {
  let set = 0;
  const controls = addChart("covered", (box) => {
    const lines = shown(data.covered[set].lines);
    const low = Math.min(0.75, ...lines.flatMap(({ points }) => points.map(([, y]) => y))) - 0.03;
    const percent = (value) => `${Math.round(100 * value)} %`;
    return lineChart(box, {
      label: "Coverage of the 90 % interval by tenth of the uncertainty", ideal: [[0, 0.9], [1, 0.9]],
      x: { label: "from the most certain to the least certain", range: [0, 1],
        ticks: { values: [0, 0.25, 0.5, 0.75, 1], format: percent } },
      y: { label: "coverage", range: [Math.max(-0.02, low), 1.02], ticks: { ...ticksBetween(Math.max(0, low), 1, 5), format: percent } },
      lines: lines.map(({ method, points }) => ({
        method,
        points: points.map(([x, y, count]) => ({ x, y, size: points.length > 1 ? 3.6 : 5,
          text: `${nameOf(method)}: ${percent(y)} of ${count} ${points.length > 1 ? "rows" : "rows, all equally certain"}` })),
      })),
    });
  });
  choice(data.covered.map((group) => group.name), "Test set", controls, (i) => { set = i; draw(); });
}

if (data.distance) {
  byId("distance-note").textContent = data.distance.warning
    || `The reference is ${data.reference}, at 0. ${data.distance.meaning} Bars are standard errors.`
    + (data.distance.floor === null ? "" : " Dashed: the distance between two halves of the reference's own chains.");
  byId("distance").classList.toggle("doubtful", Boolean(data.distance.warning));
  addChart("distance", (box) => dotChart(box, {
    label: data.distance.label, nameOf, floor: data.distance.floor,
    rows: shown(data.distance.lines).map(({ method, points: [[value, error]] }) => ({ method, value, error })),
  }));
}

if (data.severity.length) {
  let column = 0, kind = 0;
  const controls = addChart("severity", (box) => {
    const { name, groups } = data.severity[column], lines = shown(groups[kind].lines);
    const ends = lines.map((line) => line.points.flatMap(([, y, e]) => (y === null ? [] : [y - (e ?? 0), y + (e ?? 0)])));
    const steps = [...new Set(groups[kind].lines.flatMap((line) => line.points.map(([x]) => x)))];
    return lineChart(box, {
      label: `${name} by severity, ${groups[kind].name}`,
      x: { label: "severity of the corruption", range: [-0.15, Math.max(...steps) + 0.15],
        ticks: { values: steps, format: String } },
      y: { label: name, range: robustRange(ends, 0.06) },
      lines: lines.map(({ method, points }) => ({
        method,
        points: points.map(([x, y, error]) => (
          { x, y, error, text: `${nameOf(method)}, severity ${x}: ${withError(y, error)}` })),
      })),
    });
  });
  choice(data.severity.map((entry) => entry.name), "Score", controls, (i) => { column = i; draw(); });
  choice(data.severity[0].groups.map((group) => group.name), "Corruption", controls, (i) => { kind = i; draw(); });
}

if (data.attack.length) {
  let quantity = 0;
  const controls = addChart("attack", (box) => {
    const { name, lines } = data.attack[quantity];
    const ends = shown(lines).flatMap((line) => line.points.map(([, y]) => y));
    const last = Math.max(1, ...lines.flatMap((line) => line.points.map(([x]) => x)));
    return lineChart(box, {
      label: `${name} by iteration of the attack`,
      x: { label: "iteration of the attack", range: [0, last] }, y: { label: name, range: rangeOf(ends, 0.06) },
      lines: shown(lines).map(({ method, points }) => ({
        method,
        points: points.map(([x, y]) => (
          { x, y, size: points.length > 40 ? 0 : 3.2, text: `${nameOf(method)}, iteration ${x}: ${short(y)}` })),
      })),
    });
  });
  choice(data.attack.map((group) => group.name), "Show", controls, (i) => { quantity = i; draw(); });
}

if (data.uncertainty && data.uncertainty.inside.length) {
  const { label, edges, inside, outside, inside_name: insideName } = data.uncertainty;
  let other = 0;
  const describe = () => {
    const line = outside.length ? ` Line: ${outside[other].name}; it should be further right.` : "";
    byId("uncertainty-note").textContent =
      `Share of examples by the ${label} of the prediction. Filled: ${insideName}.${line} The last bin also holds what is above it.`;
  };
  const controls = addChart("uncertainty", (box) => histogramPanels(box, {
    edges, label, nameOf, insideName, outsideName: outside[other]?.name, inside: inFull(inside),
    outside: outside.length ? inFull(outside[other].lines) : [],
  }));
  describe();
  choice(outside.map((group) => group.name), "Outside", controls, (i) => { other = i; describe(); draw(); });
}

if (data.effects) {
  const { method, outputs, uncertainty, columns } = data.effects;
  let output = outputs.length - 1, showUncertainty = false;
  byId("effect-section").hidden = false;
  byId("effect-note").textContent = `How the prediction of ${nameOf(method)} changes with one column, the others as they `
    + "are in the test rows: the mean, and a band that holds 90 % of the draws"
    + (columns.every((column) => column.mean.every((row, i) => row[0] === column.low[i][0])) ? " (one set of weights: none)" : "")
    + (columns[0].interval_low[0].length ? "; lighter, the 90 % interval of the target" : "")
    + ". Ticks at the bottom are deciles of the column. The columns that matter most come first.";
  const controls = addChart("effects", (box) => effectPanels(box, {
    columns, method, output, showUncertainty,
    label: showUncertainty ? uncertainty : outputs.length > 1 ? `probability of ${outputs[output]}` : outputs[output],
  }));
  choice(["prediction", "uncertainty"], "Show", controls, (i) => { showUncertainty = i === 1; draw(); });
  choice(outputs, "Class", controls, (i) => { output = i; draw(); }, output);
}

// -- one of several boxes

function showOneOf(parent, boxes, names, label, first) {
  const show = (index) => {
    boxes.forEach((box, i) => { box.hidden = i !== index; });
    markCutTables();
  };
  if (!boxes.length) return;
  choice(names, label, parent, show, first);
  show(first);
}

const ofMethods = (boxes) => {
  const methods = boxes.map((box) => Number(box.dataset.method));
  return [methods.map(nameOf), Math.max(0, methods.indexOf(data.recommended))];
};
const classBoxes = [...byId("classes").children], confusionBoxes = [...byId("confusions").children];
const exampleBoxes = [...byId("examples").querySelectorAll("article[data-method]")];
showOneOf(byId("class-choice"), classBoxes, classBoxes.map((box) => box.dataset.class), "Class", 0);
{
  const [names, first] = ofMethods(confusionBoxes);
  showOneOf(byId("confusion-choice"), confusionBoxes, names, "Confusions of", first);
}
{
  const [names, first] = ofMethods(exampleBoxes);
  showOneOf(byId("example-choice"), exampleBoxes, names, "Examples of", first);
}
byId("class-section").hidden = !classBoxes.length;
byId("account").hidden = byId("account").children.length < 2;
