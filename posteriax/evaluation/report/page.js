
// What all parts of the page use: its data, choices, hints at the pointer; and its tables.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const nameOf = (method) => data.methods[method];
const switchedOff = new Set();
const shown = (lines) => lines.filter((line) => !switchedOff.has(line.method));
const inFull = (lines) => shown(lines).filter((line) => !faint.has(line.method));
const charts = [];  // functions that draw
emphasised.add(data.recommended);
data.methods.forEach((_, method) => { if (!data.prominent.includes(method)) faint.add(method); });

function choice(options, label, parent, onChange, first = 0) {
  if (options.length < 2) return;
  const select = document.createElement("select"), wrap = document.createElement("label");
  options.forEach((name, i) => select.append(new Option(name, i, i === first, i === first)));
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

for (const header of document.querySelectorAll("th[aria-sort]")) header.addEventListener("click", () => sortBy(header));

function showSet(index) {
  for (const box of byId("tables").children) box.hidden = Number(box.dataset.set) !== index;
  markCutTables();
}

// a box that hides a part of its table says so
function markCutTables() {
  for (const box of document.querySelectorAll(".scroll, .features")) {
    box.classList.toggle("cut", box.scrollWidth > box.clientWidth + box.scrollLeft + 1);
  }
  const cut = [...byId("tables").children].some((box) => !box.hidden && box.scrollWidth > box.clientWidth + 1);
  byId("scroll-hint").hidden = !cut;
}
for (const box of document.querySelectorAll(".scroll, .features")) box.addEventListener("scroll", markCutTables);

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
