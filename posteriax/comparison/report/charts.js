"use strict";

// Charts as SVG, drawn for the available width, so that text keeps its size on every screen. A chart returns its spots:
// the places with a value, which the pointer and the arrow keys can reach.

const PALETTE_SIZE = 8;

function svgElement(tag, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

function svgText(parent, x, y, words, attributes = {}) {
  svgElement("text", { x, y, ...attributes }, parent).textContent = words;
}

// a posterior has the same colour, marker and dashes in all charts
const lineClass = (method) => `line m${method} dashed-${Math.min(2, Math.floor(method / PALETTE_SIZE))}`;

function marker(method, x, y, r) {
  const n = (value) => value.toFixed(1);
  const polygon = (...points) => "M" + points.map(([dx, dy]) => `${n(x + dx * r)} ${n(y + dy * r)}`).join("L") + "Z";
  switch (method % 5) {
    case 1: return polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
    case 2: return polygon([0, -1.15], [1.1, 0.8], [-1.1, 0.8]);
    case 3: return polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]);
    case 4: return polygon([0, 1.15], [1.1, -0.8], [-1.1, -0.8]);
    default: return `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0Z`;
  }
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
  const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
  const toX = scale(x.range, left, width - right), toY = scale(y.range, height - bottom, top);
  const yTicks = y.ticks ?? ticksBetween(...y.range, Math.max(2, Math.floor(height / 60)));
  for (const value of yTicks.values) {
    svgElement("path", { class: "grid", d: `M${left} ${toY(value)}H${width - right}` }, svg);
    svgText(svg, left - 7, toY(value) + 4, yTicks.format(value), { "text-anchor": "end" });
  }
  const xTicks = x.ticks ?? ticksBetween(...x.range, Math.max(2, Math.floor(width / 90)));
  for (const value of xTicks.values) {
    svgElement("path", { class: "axis", d: `M${toX(value)} ${height - bottom}v5` }, svg);
    svgText(svg, toX(value), height - bottom + 18, xTicks.format(value), { "text-anchor": "middle" });
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
function lineChart(box, { lines, x, y, label, square, ideal, corners }) {
  const width = Math.max(240, Math.min(box.clientWidth, square ? 460 : 900));
  const height = square ? width * 0.95 : Math.max(240, Math.min(340, width * 0.62));
  const { svg, toX, toY } = frame(box, { width, height, x, y, label, left: 54 });
  if (ideal) svgElement("path", { class: "ideal", d: `M${toX(0)} ${toY(0)}L${toX(1)} ${toY(1)}` }, svg);
  if (corners) {
    svgText(svg, toX(0.98), toY(0.04), corners[0], { "text-anchor": "end" });
    svgText(svg, toX(0.02), toY(0.94), corners[1]);
  }
  const spots = [];
  for (const { method, points } of lines) {
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
        svgElement("path", { class: `error m${method}`, d }, svg);
      }
      const kind = point.hollow ? "hollow" : "point";
      if (size) svgElement("path", { class: `${kind} m${method}`, d: marker(method, left, top, size) }, svg);
      spots.push({ left, top, text: point.text });
    }
  }
  return [{ svg, spots }];
}

// One small panel for each posterior: filled, the bins of the inside; as a line, those of the outside.
function histogramPanels(box, { edges, inside, outside, label, nameOf, insideName, outsideName }) {
  const bins = edges.length - 1;
  const highest = Math.max(...[...inside, ...outside].flatMap((line) => line.points.map(([share]) => share)));
  const made = [];
  for (const { method, points } of inside) {
    const panel = document.createElement("div");
    box.append(panel);
    const width = Math.max(200, Math.min(panel.clientWidth, 420)), height = 190;
    const percent = (value) => `${Math.round(100 * value)} %`;
    const { svg, toX, toY } = frame(panel, {
      width, height, label: `Histogram for ${nameOf(method)}`,
      x: { label, range: [edges[0], edges[bins]], ticks: ticksBetween(edges[0], edges[bins], 4) },
      y: { range: [0, highest * 1.12], ticks: { values: ticksBetween(0, highest, 4).values, format: percent } },
    });
    const stairs = (shares) => shares.map(([share], i) => `V${toY(share)}H${toX(edges[i + 1])}`).join("");
    const start = `M${toX(edges[0])} ${toY(0)}`;
    svgElement("path", { class: `inside m${method}`, d: `${start}${stairs(points)}V${toY(0)}Z` }, svg);
    const other = outside.find((line) => line.method === method);
    if (other) svgElement("path", { class: "outside", d: `${start}${stairs(other.points)}V${toY(0)}` }, svg);
    const name = nameOf(method), most = Math.floor(width / 8);
    svgText(svg, width - 14, 16, name.length > most ? `${name.slice(0, most)}…` : name,
      { "text-anchor": "end", class: "name" });
    const spots = points.map(([share], i) => {
      const upTo = i === bins - 1 ? "and above" : `to ${short(edges[i + 1])}`;
      const lines = [`${name}: ${short(edges[i])} ${upTo}`, `${insideName}: ${(100 * share).toFixed(1)} %`];
      if (other) lines.push(`${outsideName}: ${(100 * other.points[i][0]).toFixed(1)} %`);
      return { left: (toX(edges[i]) + toX(edges[i + 1])) / 2, top: toY(share), text: lines.join("\n") };
    });
    made.push({ svg, spots });
  }
  return made;
}

// Values with error bars, one row each under its name, the smallest on top.
function dotChart(box, { rows, label, nameOf }) {
  const known = rows.filter((row) => row.value !== null).sort((a, b) => a.value - b.value);
  const width = Math.max(240, Math.min(box.clientWidth, 700)), height = 62 + 44 * known.length;
  const highest = Math.max(1e-9, ...known.map((row) => row.value + (row.error ?? 0)));
  const { svg, toX } = frame(box, {
    width, height, label, left: 20, x: { label, range: [0, highest * 1.06] },
    y: { range: [0, 1], ticks: { values: [], format: String } },
  });
  svgElement("path", { class: "axis", d: `M${toX(0)} 8V${height - 42}` }, svg);
  const spots = known.map(({ method, value, error }, i) => {
    const top = 40 + 44 * i, left = toX(value);
    svgElement("path", { class: "grid", d: `M${toX(0)} ${top}H${left}` }, svg);
    const most = Math.floor(width / 9), name = nameOf(method);
    svgText(svg, toX(0) + 6, top - 11, name.length > most ? `${name.slice(0, most)}…` : name, { class: "name" });
    if (error) {
      const [from, to] = [toX(Math.max(0, value - error)), toX(value + error)];
      svgElement("path", { class: `error m${method}`, d: `M${from} ${top}H${to}M${from} ${top - 4}v8M${to} ${top - 4}v8` }, svg);
    }
    svgElement("path", { class: `point m${method}`, d: marker(method, left, top, 5) }, svg);
    return { left, top, text: `${name}: ${withError(value, error)}` };
  });
  return [{ svg, spots }];
}
