
// The page: which test set and which posteriors are shown, sorting, hints at the pointer, light and dark.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const nameOf = (method) => data.methods[method];
const switchedOff = new Set();
const shown = (lines) => lines.filter((line) => !switchedOff.has(line.method));
const charts = [];  // functions that draw

function choice(options, label, parent, onChange) {
  if (options.length < 2) return;
  const select = document.createElement("select"), wrap = document.createElement("label");
  options.forEach((name, i) => select.append(new Option(name, i)));
  select.addEventListener("change", () => onChange(Number(select.value)));
  wrap.append(`${label} `, select);
  parent.append(wrap);
}

function addChart(id, draw) {
  const card = byId(id), box = card.querySelector(".chart");
  card.hidden = false;
  charts.push(() => {
    box.replaceChildren();
    for (const { svg, spots } of draw(box)) attachHints(svg, spots);
  });
  return card.querySelector(".controls");
}

// -- hints

const tooltip = byId("tooltip");
let toldBy = null;  // the chart that the tooltip belongs to
let pointerPlace = null;

function attachHints(svg, spots) {
  let current = -1;
  const ring = svgElement("circle", { class: "spot", r: 8, visibility: "hidden" }, svg);
  const hide = () => {
    if (toldBy === svg) tooltip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  };
  const show = (index) => {
    current = index;
    toldBy = svg;
    const { left, top, text } = spots[index], area = svg.getBoundingClientRect();
    const scale = area.width / svg.viewBox.baseVal.width;
    ring.setAttribute("cx", left);
    ring.setAttribute("cy", top);
    ring.setAttribute("visibility", "visible");
    tooltip.textContent = text;
    tooltip.hidden = false;
    const x = area.left + left * scale, y = area.top + top * scale;
    const widest = document.documentElement.clientWidth - tooltip.offsetWidth - 8;
    tooltip.style.left = `${Math.max(8, Math.min(x + 14, widest))}px`;
    tooltip.style.top = `${y - tooltip.offsetHeight - 12 > 4 ? y - tooltip.offsetHeight - 12 : y + 16}px`;
  };
  const follow = (event) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (event.type === "pointermove" && place === pointerPlace) return;  // the page was scrolled, perhaps by keys
    pointerPlace = place;
    const area = svg.getBoundingClientRect(), scale = area.width / svg.viewBox.baseVal.width;
    let nearest = -1, least = 40 ** 2;
    spots.forEach(({ left, top }, i) => {
      const far = (area.left + left * scale - event.clientX) ** 2 + (area.top + top * scale - event.clientY) ** 2;
      if (far < least) [nearest, least] = [i, far];
    });
    if (nearest < 0) hide();
    else show(nearest);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !spots.length) return;
    event.preventDefault();
    show(current < 0 ? 0 : (current + step + spots.length) % spots.length);
  });
}

// -- tables

function sortBy(header) {
  const table = header.closest("table"), column = header.cellIndex, body = table.tBodies[0];
  const turned = { ascending: "descending", descending: "ascending" }[header.getAttribute("aria-sort")];
  const way = turned ?? header.dataset.first;
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", other === header ? way : "none");
  const sign = way === "ascending" ? 1 : -1;
  const compare = (a, b) => {
    const [one, two] = [a.cells[column], b.cells[column]];
    if (column === 0) return sign * one.textContent.localeCompare(two.textContent, undefined, { numeric: true });
    const [left, right] = [one.dataset.value, two.dataset.value];
    if (left === undefined || right === undefined) return (left === undefined) - (right === undefined);
    return sign * (Number(left) - Number(right));
  };
  body.append(...[...body.rows].sort(compare));
}

for (const header of document.querySelectorAll("th[aria-sort]")) {
  header.querySelector("button").addEventListener("click", () => sortBy(header));
}

function showSet(index) {
  for (const box of byId("tables").children) box.hidden = Number(box.dataset.set) !== index;
}

if (data.sets.length > 1) {
  const corrupted = document.createElement("optgroup"), select = byId("set");
  corrupted.label = "corrupted";
  data.sets.forEach((name, i) => (data.corrupted.includes(i) ? corrupted : select).append(new Option(name, i)));
  if (corrupted.children.length) select.append(corrupted);
  select.addEventListener("change", () => showSet(Number(select.value)));
  byId("set-choice").hidden = false;
}
for (const caption of document.querySelectorAll("#tables caption")) caption.hidden = data.sets.length === 1;
showSet(0);

// -- charts

if (data.reliability.length) {
  let set = 0;
  const controls = addChart("reliability", (box) => lineChart(box, {
    label: "Fraction right against confidence", square: true, ideal: true,
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
    label: "Observed against nominal coverage", square: true, ideal: true,
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

if (data.distance) {
  byId("distance-note").textContent = data.distance.warning
    || `The reference is ${data.reference}, at 0. ${data.distance.meaning} Bars are standard errors.`;
  byId("distance").classList.toggle("doubtful", Boolean(data.distance.warning));
  addChart("distance", (box) => dotChart(box, {
    label: data.distance.label, nameOf,
    rows: shown(data.distance.lines).map(({ method, points: [[value, error]] }) => ({ method, value, error })),
  }));
}

if (data.severity.length) {
  let column = 0, kind = 0;
  const controls = addChart("severity", (box) => {
    const { name, groups } = data.severity[column], lines = shown(groups[kind].lines);
    const ends = lines.flatMap((line) => line.points.flatMap(([, y, e]) => (y === null ? [] : [y - (e ?? 0), y + (e ?? 0)])));
    const steps = [...new Set(groups[kind].lines.flatMap((line) => line.points.map(([x]) => x)))];
    return lineChart(box, {
      label: `${name} by severity, ${groups[kind].name}`,
      x: { label: "severity of the corruption", range: [-0.15, Math.max(...steps) + 0.15],
        ticks: { values: steps, format: String } },
      y: { label: name, range: rangeOf(ends, 0.06) },
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
      `Share of examples by ${label}. Filled: ${insideName}.${line} The last bin also holds what is above it.`;
  };
  const controls = addChart("uncertainty", (box) => histogramPanels(box, {
    edges, label, nameOf, insideName, outsideName: outside[other]?.name, inside: shown(inside),
    outside: outside.length ? shown(outside[other].lines) : [],
  }));
  describe();
  choice(outside.map((group) => group.name), "Outside", controls, (i) => { other = i; describe(); draw(); });
}

// -- which posteriors are shown

function toggle(method, on) {
  if (on) switchedOff.delete(method);
  else switchedOff.add(method);
  for (const card of document.querySelectorAll("article[data-method]")) {
    card.hidden = switchedOff.has(Number(card.dataset.method));
  }
  draw();
}

data.methods.forEach((name, method) => {
  const label = document.createElement("label"), box = document.createElement("input");
  box.type = "checkbox";
  box.checked = true;
  box.addEventListener("change", () => toggle(method, box.checked));
  const sign = svgElement("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" });
  svgElement("path", { class: "point", d: marker(method, 8, 8, 5) }, sign);
  const words = document.createElement("span");
  words.textContent = words.title = name;
  label.className = `m${method}`;
  label.append(box, sign, words);
  byId("legend").append(label);
});
for (const swatch of document.querySelectorAll(".swatch")) swatch.classList.add(`m${swatch.dataset.method}`);
byId("legend").hidden = !charts.length;
byId("example-section").hidden = !byId("examples").children.length;
byId("sort-hint").hidden = false;

// -- light and dark

const darkByDefault = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement, themeButton = byId("theme");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkByDefault.matches);
const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
themeButton.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
darkByDefault.addEventListener("change", nameTheme);
themeButton.hidden = false;
nameTheme();

// -- drawing

function draw() {
  tooltip.hidden = true;
  for (const chart of charts) chart();
}

let drawnWidth = 0;
new ResizeObserver(() => {
  if (byId("charts").clientWidth === drawnWidth) return;
  drawnWidth = byId("charts").clientWidth;
  draw();
}).observe(byId("charts"));
