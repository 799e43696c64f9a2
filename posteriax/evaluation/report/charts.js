"use strict";

// Charts as SVG, drawn for the available width, so that text keeps its size on every screen. A chart returns its spots:
// the places with a value, which the pointer and the arrow keys can reach.

const PALETTE_SIZE = 10;
const EXPLODED = 6;  // times the usual: what is beyond does not set the limit of an axis, and is drawn at its edge

function svgElement(tag, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

function svgText(parent, x, y, words, attributes = {}) {
  svgElement("text", { x, y, ...attributes }, parent).textContent = words;
}

// a posterior has the same colour, marker and dashes in all charts; those that are emphasised have thicker lines
const emphasised = new Set(), faint = new Set();
const signClass = (kind, method) => `${kind} m${method}${faint.has(method) ? " faint" : ""}`;
const lineClass = (method) => (
  `${signClass("line", method)} dashed-${Math.min(2, Math.floor(method / PALETTE_SIZE))}${emphasised.has(method) ? " main" : ""}`);

const regular = (corners, turn, r) => Array.from({ length: corners }, (_, k) => {
  const angle = turn + (2 * Math.PI * k) / corners, far = Array.isArray(r) ? r[k % r.length] : r;
  return [far * Math.sin(angle), -far * Math.cos(angle)];
});
const cross = [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2],
  [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]];
const MARKERS = [  // corners for the radius 1; the first is a circle
  null, regular(4, Math.PI / 4, 1.25), regular(3, 0, 1.3), regular(4, 0, 1.35), regular(3, Math.PI, 1.3), cross,
  cross.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]), regular(10, 0, [1.5, 0.65]),
  regular(5, 0, 1.2), regular(6, Math.PI / 6, 1.2),
];

function marker(method, x, y, r) {
  // where colours repeat, markers are shifted, so that no two posteriors have both in common
  const n = (value) => value.toFixed(1), turn = method + 3 * Math.floor(method / PALETTE_SIZE);
  const corners = MARKERS[turn % MARKERS.length];
  if (corners) return "M" + corners.map(([dx, dy]) => `${n(x + dx * r)} ${n(y + dy * r)}`).join("L") + "Z";
  return `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0Z`;
}

function ticksBetween(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((multiple) => multiple * power >= rough * 0.999) ?? 10);
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  const values = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + step * 1e-6; k++) values.push(k * step);
  return { values, format: (value) => value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1") };
}

function rangeOf(values, pad) {
  const finite = values.filter((value) => value !== null && Number.isFinite(value));
  if (!finite.length) return [0, 1];
  const low = Math.min(...finite), high = Math.max(...finite);
  const margin = high > low ? pad * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
}

// The same for lists of values, one for each posterior, of which some may have exploded.
function robustRange(lists, pad, times = EXPLODED) {
  const finite = lists.map((list) => list.filter((value) => value !== null && Number.isFinite(value)))
    .filter((list) => list.length);
  if (finite.length < 3) return rangeOf(finite.flat(), pad);
  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];
  const middle = median(finite.flat()), sizes = finite.map((list) => Math.max(...list.map((v) => Math.abs(v - middle))));
  const usual = Math.max(median(sizes), Math.abs(middle) / times);
  const kept = usual ? finite.filter((_, i) => sizes[i] <= times * usual) : finite;
  return rangeOf((kept.length ? kept : finite).flat(), pad);
}

function short(value) {
  if (value === null || value === undefined) return "unknown";
  return Number.isInteger(value) ? String(value) : Number(value.toPrecision(3)).toString();
}

const withError = (value, error) => short(value) + (error ? ` ± ${short(Number(error.toPrecision(2)))}` : "");

// A frame with both axes: x and y are {label, range, ticks?}; returns the svg and the two scales.
function frame(box, { width, height, x, y, label, left = 46 }) {
  const svg = svgElement("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0,
    "aria-label": `${label}. Arrow keys move from point to point.`,
  });
  const top = 12, right = 14, bottom = 42;
  const scale = ([low, high], from, to) => (value) => (
    from + ((Math.min(high, Math.max(low, value)) - low) / (high - low)) * (to - from));
  const toX = scale(x.range, left, width - right), toY = scale(y.range, height - bottom, top);
  const yTicks = y.ticks ?? ticksBetween(...y.range, Math.max(2, Math.floor(height / 60)));
  for (const value of yTicks.values) {
    svgElement("path", { class: "grid", d: `M${left} ${toY(value)}H${width - right}` }, svg);
    svgText(svg, left - 7, toY(value) + 4, yTicks.format(value), { "text-anchor": "end" });
  }
  const xTicks = x.ticks ?? ticksBetween(...x.range, Math.max(2, Math.floor(width / 90)));
  for (const value of xTicks.values) {
    svgElement("path", { class: "axis", d: `M${toX(value)} ${height - bottom}v5` }, svg);
    const words = xTicks.format(value), atEnd = width - toX(value) < 3.6 * words.length;
    const place = { "text-anchor": atEnd ? "end" : "middle" };
    svgText(svg, atEnd ? width - 1 : toX(value), height - bottom + 18, words, place);
  }
  svgElement("path", { class: "axis", d: `M${left} ${height - bottom}H${width - right}` }, svg);
  svgText(svg, (left + width - right) / 2, height - 5, x.label, { "text-anchor": "middle" });
  if (y.label) {
    const middle = (top + height - bottom) / 2;
    svgText(svg, 0, 0, y.label, { "text-anchor": "middle", transform: `translate(12 ${middle}) rotate(-90)` });
  }
  box.append(svg);
  return { svg, toX, toY };
}

// Lines with points: {method, points: [{x, y, error?, size?, hollow?, text}]}.
// `ideal` is a line: its two ends. `corners` are words at the lower right and the upper left.
function lineChart(box, { lines, x, y, label, square, ideal, corners }) {
  const width = Math.max(240, Math.min(box.clientWidth, square ? 460 : 900));
  const height = square ? width * 0.95 : Math.max(240, Math.min(340, width * 0.62));
  const { svg, toX, toY } = frame(box, { width, height, x, y, label, left: 54 });
  if (ideal) {
    const path = ideal.map(([a, b]) => `${toX(a)} ${toY(b)}`).join("L");
    svgElement("path", { class: "ideal", d: `M${path}` }, svg);
  }
  if (corners) {
    svgText(svg, toX(x.range[1]) - 6, toY(y.range[0]) - 8, corners[0], { "text-anchor": "end", class: "corner" });
    svgText(svg, toX(x.range[0]) + 8, toY(y.range[1]) + 14, corners[1], { class: "corner" });
  }
  const spots = [];
  const depth = ({ method }) => emphasised.has(method) - faint.has(method);
  const inFront = [...lines].sort((a, b) => depth(a) - depth(b));
  for (const { method, points } of inFront) {
    const known = points.filter((point) => point.x !== null && point.y !== null);
    const joined = known.filter((point) => !point.hollow);
    if (joined.length > 1) {
      const path = joined.map((point) => `${toX(point.x).toFixed(1)} ${toY(point.y).toFixed(1)}`).join("L");
      svgElement("path", { class: lineClass(method), d: "M" + path }, svg);
    }
    for (const point of known) {
      const left = toX(point.x), top = toY(point.y), size = point.size ?? 3.6;
      if (point.error) {
        const d = `M${left} ${toY(point.y - point.error)}V${toY(point.y + point.error)}`;
        svgElement("path", { class: signClass("error", method), d }, svg);
      }
      const beyond = point.y > y.range[1] || point.x > x.range[1] || point.y < y.range[0];
      const kind = point.hollow || beyond ? "hollow" : "point";
      if (size) svgElement("path", { class: signClass(kind, method), d: marker(method, left, top, size) }, svg);
      spots.push({ left, top, text: point.text });
    }
  }
  return [{ svg, spots }];
}

// Values with error bars, one row each under its name, the smallest on top.
function dotChart(box, { rows, label, nameOf, floor = null }) {
  const known = rows.filter((row) => row.value !== null).sort((a, b) => a.value - b.value);
  const width = Math.max(240, Math.min(box.clientWidth, 700)), height = 62 + 44 * known.length;
  const highest = Math.max(1e-9, robustRange(known.map((row) => [row.value + (row.error ?? 0)]), 0, 3 * EXPLODED)[1]);
  const { svg, toX } = frame(box, {
    width, height, label, left: 20, x: { label, range: [0, highest * 1.06] },
    y: { range: [0, 1], ticks: { values: [], format: String } },
  });
  svgElement("path", { class: "axis", d: `M${toX(0)} 8V${height - 42}` }, svg);
  if (floor !== null) svgElement("path", { class: "ideal", d: `M${toX(floor)} 8V${height - 42}` }, svg);
  const spots = known.map(({ method, value, error }, i) => {
    const top = 40 + 44 * i, left = toX(value);
    svgElement("path", { class: "grid", d: `M${toX(0)} ${top}H${left}` }, svg);
    const most = Math.floor(width / 9), name = nameOf(method);
    svgText(svg, toX(0) + 6, top - 11, name.length > most ? `${name.slice(0, most)}…` : name, { class: "name" });
    if (error) {
      const [from, to] = [toX(Math.max(0, value - error)), toX(value + error)];
      svgElement("path", { class: `error m${method}`, d: `M${from} ${top}H${to}M${from} ${top - 4}v8M${to} ${top - 4}v8` }, svg);
    }
    const beyond = value > highest * 1.06;
    svgElement("path", { class: `${beyond ? "hollow" : "point"} m${method}`, d: marker(method, left, top, 5) }, svg);
    if (beyond) svgText(svg, left - 8, top + 4, `${short(value)} →`, { "text-anchor": "end" });
    return { left, top, text: `${name}: ${withError(value, error)}` };
  });
  return [{ svg, spots }];
}
